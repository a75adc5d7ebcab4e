// Replaces the C library's getnameinfo() in this process, for the libraries that it loads too. c10d's store asks for the name of each
// address that connects, on its only thread and only for its log, and PyTorch has no option against that: where the name server does not
// answer, every start would take at least ten seconds longer, and connections that outnumber the ranks would end it. The dynamic linker
// prefers a function of the executable to one of a shared library.

#include <dlfcn.h>
#include <netdb.h>

// Gives the address itself in place of its name, without asking a name server, unless the caller accepts nothing but a name. Thread-safe.
extern "C" int getnameinfo(const sockaddr* address, socklen_t address_size, char* host, socklen_t host_size, char* service,
                           socklen_t service_size, int flags) {
  using Function = int (*)(const sockaddr*, socklen_t, char*, socklen_t, char*, socklen_t, int);
  static const auto replaced = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getnameinfo"));
  if ((flags & NI_NAMEREQD) == 0) flags |= NI_NUMERICHOST;
  return replaced(address, address_size, host, host_size, service, service_size, flags);
}
