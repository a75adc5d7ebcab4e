"""Reads LMDB environments with the C library itself, as other programs do."""

import ctypes

RDONLY, NOLOCK = 0x20000, 0x400000
FIRST, NEXT = 0, 8
NOTFOUND = -30798


class Value(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("data", ctypes.c_void_p)]

    def content(self):
        return ctypes.string_at(self.data, self.size)


def read_entries(folder):
    """All entries of the environment in the folder, in the order of their keys."""
    library = ctypes.CDLL("liblmdb.so.0")

    def require(result):
        if result != 0:
            raise OSError(f"{folder}: LMDB's error {result}")

    environment, transaction, cursor = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    database = ctypes.c_uint()
    require(library.mdb_env_create(ctypes.byref(environment)))
    try:
        require(library.mdb_env_open(environment, str(folder).encode(), RDONLY | NOLOCK, 0o644))
        require(library.mdb_txn_begin(environment, None, RDONLY, ctypes.byref(transaction)))
        require(library.mdb_dbi_open(transaction, None, 0, ctypes.byref(database)))
        require(library.mdb_cursor_open(transaction, database, ctypes.byref(cursor)))
        entries, key, value, position = {}, Value(), Value(), FIRST
        while (result := library.mdb_cursor_get(cursor, ctypes.byref(key), ctypes.byref(value), position)) != NOTFOUND:
            require(result)
            entries[key.content()] = value.content()
            position = NEXT
        library.mdb_cursor_close(cursor)
        library.mdb_txn_abort(transaction)
        return entries
    finally:
        library.mdb_env_close(environment)
