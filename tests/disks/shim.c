/* What a process does to the files below one folder: written down in order, and failed where that is asked.

   cc -shared -fPIC -O2 -o shim.so shim.c -ldl; then LD_PRELOAD it.

   DISKS_ROOT   the folder; nothing outside of it is looked at
   DISKS_TRACE  a file that every operation is appended to: "BiqI" (kind, descriptor, place, length), then its bytes
   DISKS_STUCK  while there is a file of this name, the folder's disk is read-only: EROFS
   disks_arm(n, how)   fail the n-th operation from now on: see HOW below; n = 0: none
   disks_count()       operations since then
   disks_hit()         what was done to the operation that failed: its kind, 0 where none was
   disks_note(text)    a note in the trace

   Kinds: O open (place: flags, bytes: path), C close, W write (place: where), T cut to a length (place), S fsync or fdatasync,
   U unlink, R rename (bytes: from, newline, to), M mkdir, N note, P read (counted, never written down). */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* HOW: 1 EIO once; 2 ENOSPC once; 3 half of a write, then ENOSPC once; 4 ENOSPC from then on; 5 EIO from then on. */
enum { IO_ERROR = 1, NO_ROOM = 2, HALF = 3, FULL = 4, DEAD = 5 };

#define MOST 4096
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int trace = -1, how;
static long due, counted;
static char hit, ours[MOST]; /* of a descriptor: 0 not known, 1 ours, 2 not ours */
static const char *root, *stuck;

__attribute__((constructor)) static void begin(void) {
    root = getenv("DISKS_ROOT");
    stuck = getenv("DISKS_STUCK");
    const char *path = getenv("DISKS_TRACE");
    if (path) trace = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (trace >= 0) {
        int high = fcntl(trace, F_DUPFD_CLOEXEC, 1000);
        syscall(SYS_close, trace);
        trace = high;
    }
}

static void put(char kind, int fd, int64_t place, const void *bytes, uint32_t length) {
    if (trace < 0) return;
    char *line = malloc(17 + (size_t)length);
    line[0] = kind;
    memcpy(line + 1, &fd, 4);
    memcpy(line + 5, &place, 8);
    memcpy(line + 13, &length, 4);
    if (length) memcpy(line + 17, bytes, length);
    for (size_t done = 0; done < 17 + (size_t)length;) {
        ssize_t came = syscall(SYS_write, trace, line + done, 17 + (size_t)length - done);
        if (came <= 0) _exit(99);
        done += came;
    }
    free(line);
}

static int below(const char *path) {
    if (!root) return 0;
    size_t length = strlen(root);
    return strncmp(path, root, length) == 0 && (path[length] == '/' || path[length] == 0);
}

/* The path in full, in `whole`; whether it is ours. */
static int full(const char *path, char *whole) {
    if (path[0] == '/') {
        snprintf(whole, PATH_MAX, "%s", path);
    } else {
        char here[PATH_MAX];
        if (!getcwd(here, sizeof here)) return 0;
        if (strcmp(path, ".") == 0) snprintf(whole, PATH_MAX, "%s", here);
        else snprintf(whole, PATH_MAX, "%.2000s/%.2000s", here, path);
    }
    return below(whole);
}

static int known(int fd) {
    if (!root || fd < 0 || fd >= MOST) return 0;
    if (!ours[fd]) {
        char link[64], path[PATH_MAX];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, path, sizeof path - 1);
        path[length > 0 ? length : 0] = 0;
        ours[fd] = below(path) ? 1 : 2;
    }
    return ours[fd] == 1;
}

/* What becomes of this operation: 0, or the error; for HALF -1, and the next one that writes finds no room. */
static int fate(char kind, int grows) {
    counted++;
    int writes = kind == 'O' ? grows : kind != 'P' && kind != 'S';
    if (stuck && writes && syscall(SYS_faccessat, AT_FDCWD, stuck, F_OK) == 0) return EROFS;
    if (!due || counted < due) return 0;
    if (kind == 'P' && how != IO_ERROR && how != DEAD) return 0;
    if (how == FULL || how == DEAD) {
        if (how == FULL && !grows) return 0;
        hit = kind;
        return how == FULL ? ENOSPC : EIO;
    }
    if (how == HALF) {
        if (hit == 'h' && grows) { hit = kind; return ENOSPC; }
        if (hit || counted != due || kind != 'W') return 0;
        hit = 'h';
        return -1;
    }
    if (counted != due || (how == NO_ROOM && !grows)) return 0;
    hit = kind;
    return how == NO_ROOM ? ENOSPC : EIO;
}

void disks_arm(long n, int what) { pthread_mutex_lock(&turn); due = n; how = what; counted = 0; hit = 0; pthread_mutex_unlock(&turn); }
long disks_count(void) { return counted; }
int disks_hit(void) { return hit; }
void disks_note(const char *text) { pthread_mutex_lock(&turn); put('N', -1, 0, text, strlen(text)); pthread_mutex_unlock(&turn); }

#define BEGIN pthread_mutex_lock(&turn); int error; long came = -1
#define END pthread_mutex_unlock(&turn); return came
#define FAIL(number) (errno = (number), came = -1)

static int opened(int folder, const char *path, int flags, mode_t mode) {
    char whole[PATH_MAX];
    if (!root || (folder != AT_FDCWD && path[0] != '/') || !full(path, whole)) {
        int fd = syscall(SYS_openat, folder, path, flags, mode);
        if (fd >= 0 && fd < MOST) ours[fd] = 2;
        return fd;
    }
    BEGIN;
    int writes = flags & (O_WRONLY | O_RDWR);
    if ((error = fate('O', writes || (flags & O_CREAT))) > 0) FAIL(error);
    else came = syscall(SYS_openat, folder, path, flags, mode);
    if (came >= 0 && came < MOST) ours[came] = 1;
    if (came >= 0) put('O', came, flags, whole, strlen(whole));
    END;
}

#define MODE va_list more; va_start(more, flags); mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0; va_end(more)
int open(const char *path, int flags, ...) { MODE; return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE; return opened(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE; return opened(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE; return opened(folder, path, flags | O_LARGEFILE, mode); }

int close(int fd) {
    if (fd < 0 || fd >= MOST || ours[fd] != 1) {
        if (fd >= 0 && fd < MOST) ours[fd] = 0;
        return syscall(SYS_close, fd);
    }
    pthread_mutex_lock(&turn);
    ours[fd] = 0;
    put('C', fd, 0, "", 0);
    int came = syscall(SYS_close, fd);
    pthread_mutex_unlock(&turn);
    return came;
}

static ssize_t wrote(int fd, const void *bytes, size_t size, off_t at, int placed) {
    if (!known(fd)) return placed ? syscall(SYS_pwrite64, fd, bytes, size, at) : syscall(SYS_write, fd, bytes, size);
    BEGIN;
    error = fate('W', 1);
    if (error < 0) size = size > 1 ? size / 2 : size;
    if (error > 0) FAIL(error);
    else came = placed ? syscall(SYS_pwrite64, fd, bytes, size, at) : syscall(SYS_write, fd, bytes, size);
    if (came > 0) put('W', fd, placed ? at : lseek(fd, 0, SEEK_CUR) - came, bytes, came);
    END;
}

ssize_t write(int fd, const void *bytes, size_t size) { return wrote(fd, bytes, size, 0, 0); }
ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) { return wrote(fd, bytes, size, at, 1); }
ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) { return wrote(fd, bytes, size, at, 1); }

static ssize_t took(int fd, void *bytes, size_t size, off_t at, int placed) {
    if (known(fd)) {
        pthread_mutex_lock(&turn);
        int error = fate('P', 0);
        pthread_mutex_unlock(&turn);
        if (error > 0) { errno = error; return -1; }
    }
    return placed ? syscall(SYS_pread64, fd, bytes, size, at) : syscall(SYS_read, fd, bytes, size);
}

ssize_t read(int fd, void *bytes, size_t size) { return took(fd, bytes, size, 0, 0); }
ssize_t pread(int fd, void *bytes, size_t size, off_t at) { return took(fd, bytes, size, at, 1); }
ssize_t pread64(int fd, void *bytes, size_t size, off64_t at) { return took(fd, bytes, size, at, 1); }

static int cut(int fd, off_t length) {
    if (!known(fd)) return syscall(SYS_ftruncate, fd, length);
    BEGIN;
    if ((error = fate('T', 0)) > 0) FAIL(error);
    else came = syscall(SYS_ftruncate, fd, length);
    if (came == 0) put('T', fd, length, "", 0);
    END;
}

int ftruncate(int fd, off_t length) { return cut(fd, length); }
int ftruncate64(int fd, off64_t length) { return cut(fd, length); }

static int synced(int fd, int number) {
    if (!known(fd)) return syscall(number, fd);
    BEGIN;
    if ((error = fate('S', 1)) > 0) FAIL(error);
    else came = syscall(number, fd);
    if (came == 0) put('S', fd, 0, "", 0);
    END;
}

int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

int unlink(const char *path) {
    char whole[PATH_MAX];
    if (!root || !full(path, whole)) return syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    BEGIN;
    if ((error = fate('U', 0)) > 0) FAIL(error);
    else came = syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    if (came == 0) put('U', -1, 0, whole, strlen(whole));
    END;
}

int rename(const char *from, const char *to) {
    char old[PATH_MAX], new[PATH_MAX], both[2 * PATH_MAX];
    if (!root || !full(from, old) || !full(to, new)) return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    BEGIN;
    if ((error = fate('R', 1)) > 0) FAIL(error);
    else came = syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    if (came == 0) {
        snprintf(both, sizeof both, "%s\n%s", old, new);
        put('R', -1, 0, both, strlen(both));
    }
    END;
}

int mkdir(const char *path, mode_t mode) {
    char whole[PATH_MAX];
    if (!root || !full(path, whole)) return syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    BEGIN;
    if ((error = fate('M', 1)) > 0) FAIL(error);
    else came = syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    if (came == 0) put('M', -1, 0, whole, strlen(whole));
    END;
}
