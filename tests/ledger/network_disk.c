/* What a network file system answers, on a local one. cc -shared -fPIC -o shim.so network_disk.c; then LD_PRELOAD it.

   DISK_MAGIC  f_type of statfs(2); DISK_LOCK, DISK_FLOCK, DISK_MAP: errno of fcntl's locks, of flock and of shared maps. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>
static long number(const char *name) { const char *v = getenv(name); return v ? strtol(v, 0, 0) : 0; }
int statfs(const char *path, struct statfs *b) { int r = syscall(SYS_statfs, path, b); if (!r && number("DISK_MAGIC")) b->f_type = number("DISK_MAGIC"); return r; }
int fcntl64(int fd, int cmd, ...) { va_list l; va_start(l, cmd); void *a = va_arg(l, void *); va_end(l);
  if ((cmd == F_SETLK || cmd == F_SETLKW) && number("DISK_LOCK")) { errno = number("DISK_LOCK"); return -1; }
  return syscall(SYS_fcntl, fd, cmd, a); }
int fcntl(int fd, int cmd, ...) { va_list l; va_start(l, cmd); void *a = va_arg(l, void *); va_end(l); return fcntl64(fd, cmd, a); }
int flock(int fd, int op) { if (number("DISK_FLOCK")) { errno = number("DISK_FLOCK"); return -1; } return syscall(SYS_flock, fd, op); }
static void *map(void *a, size_t n, int p, int f, int fd, off_t o) { if (number("DISK_MAP") && (f & MAP_SHARED) && fd >= 0) { errno = number("DISK_MAP"); return MAP_FAILED; } return (void *)syscall(SYS_mmap, a, n, p, f, fd, o); }
void *mmap(void *a, size_t n, int p, int f, int fd, off_t o) { return map(a,n,p,f,fd,o); }
void *mmap64(void *a, size_t n, int p, int f, int fd, off_t o) { return map(a,n,p,f,fd,o); }
