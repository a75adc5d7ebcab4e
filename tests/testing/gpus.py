"""The GPUs of this machine."""

import ctypes
import functools


@functools.cache
def visible_gpus():
    """The names of the GPUs that the NVIDIA driver shows to this process; if there are none, also the reason. Does not use
    /proc/driver/nvidia, because it is missing on some systems with GPUs, such as WSL."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return [], "no NVIDIA driver (libcuda.so.1) is installed here"
    status = driver.cuInit(0)
    if status != 0:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(status, ctypes.byref(text))
        return [], f"the NVIDIA driver reports: {(text.value or b'an unknown error').decode()}"
    count = ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    names = []
    for number in range(count.value):
        name = ctypes.create_string_buffer(256)
        driver.cuDeviceGetName(name, len(name), number)
        names.append(name.value.decode())
    return names, "" if names else "the NVIDIA driver shows none to this process"
