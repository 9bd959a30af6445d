/* Refuses what the variable FAULT says: OPERATION,NAME,ERRNO,FIRST,COUNT: of the calls on files whose path has NAME in
   it, COUNT from number FIRST (0) on.  half: half of a write, then the error.  short: half of a write, and no error.
   cc -shared -fPIC -O1 -o fault_shim.so fault_shim.c -ldl */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int refused(const char *operation, const char *path) {
    static char last[256];
    static int calls;
    const char *fault = getenv("FAULT");
    char wanted[16], name[200];
    int number, first, count;
    if (!fault || !path || sscanf(fault, "%15[^,],%199[^,],%d,%d,%d", wanted, name, &number, &first, &count) != 5) return 0;
    if (strcmp(wanted, operation) || !strstr(path, name)) return 0;
    if (strncmp(last, fault, sizeof last - 1)) { strncpy(last, fault, sizeof last - 1); calls = 0; }
    int call = calls++;
    return call >= first && call - first < count ? number : 0;
}

static const char *path_of(int file) {
    static __thread char path[1024];
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = getenv("FAULT") ? readlink(link, path, sizeof path - 1) : -1;
    if (length < 0) return NULL;
    path[length] = 0;
    return path;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define REFUSE(operation, path) do { int number = refused(operation, path); if (number) { errno = number; return -1; } } while (0)
#define OPEN(call) mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); } \
    REFUSE((flags & O_ACCMODE) == O_RDONLY ? "openr" : "openw", path); return call

int open(const char *path, int flags, ...) { REAL(open); OPEN(real(path, flags, mode)); }
int open64(const char *path, int flags, ...) { REAL(open64); OPEN(real(path, flags, mode)); }
int openat(int at, const char *path, int flags, ...) { REAL(openat); OPEN(real(at, path, flags, mode)); }
int openat64(int at, const char *path, int flags, ...) { REAL(openat64); OPEN(real(at, path, flags, mode)); }
ssize_t read(int file, void *to, size_t size) { REAL(read); REFUSE("read", path_of(file)); return real(file, to, size); }
ssize_t write(int file, const void *from, size_t size) {
    REAL(write);
    const char *path = path_of(file);
    REFUSE("write", path);
    if (size > 1 && refused("short", path)) size /= 2;
    int number = size > 1 ? refused("half", path) : 0;
    if (number) { if (real(file, from, size / 2) >= 0) errno = number; return -1; }
    return real(file, from, size);
}
int fsync(int file) { REAL(fsync); REFUSE("fsync", path_of(file)); return real(file); }
int rename(const char *from, const char *to) { REAL(rename); REFUSE("rename", to); return real(from, to); }
int unlink(const char *path) { REAL(unlink); REFUSE("unlink", path); return real(path); }
int unlinkat(int at, const char *path, int flags) { REAL(unlinkat); REFUSE("unlink", path); return real(at, path, flags); }
int ftruncate64(int file, off64_t size) { REAL(ftruncate64); REFUSE("truncate", path_of(file)); return real(file, size); }
