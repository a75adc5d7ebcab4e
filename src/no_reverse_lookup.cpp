// Replaces the C library's getnameinfo() in this process, also for the shared libraries that it loads: the dynamic linker prefers a
// function of the executable to one of a shared library. c10d's store looks up the host name of each address that connects. It needs the
// name only for its log, but its only thread waits for the name server, and PyTorch has no option to switch this off. If the name server
// does not answer, each start would take at least ten seconds longer.

#include <dlfcn.h>
#include <netdb.h>

// Returns the numeric address instead of the host name, without a query to a name server, unless NI_NAMEREQD requires a name. Thread-safe.
extern "C" int getnameinfo(const sockaddr* address, socklen_t address_size, char* host, socklen_t host_size, char* service,
                           socklen_t service_size, int flags) {
  using Function = int (*)(const sockaddr*, socklen_t, char*, socklen_t, char*, socklen_t, int);
  static const auto replaced = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getnameinfo"));
  if ((flags & NI_NAMEREQD) == 0) flags |= NI_NUMERICHOST;
  return replaced(address, address_size, host, host_size, service, service_size, flags);
}
