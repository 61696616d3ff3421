/* A disk in trouble, for real programs that know nothing of it: LD_PRELOAD=.../faulty_disk.so PROGRAM.
 *
 * Calls on the files of some folders are delayed, held up, refused or carried out in part, as the control file beside
 * this library says. It is shared memory of all programs on this disk and of the test that steers it (disk.py), so
 * that the trouble begins and ends while they run. What a program does elsewhere goes its way untouched.
 *
 * What a full disk refuses is what would need room: a write within a file's length succeeds, as on a real one. A torn
 * write puts a part of its bytes into the file and says so by a short count; what is written after it fails.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { OPEN, WRITE, SYNC, TRUNCATE, RENAME, LOCK, MAKE_FOLDER, OPERATIONS };
enum { ZONES = 8, FILES = 65536, MILLION = 1000000, TURN_US = 50000 };

/* The same as in disk.py. */
typedef struct {
    _Atomic uint32_t delay_us, stall_us, stall_ppm, error, error_ppm, torn;
    _Atomic uint64_t only, calls, stalled, failed; /* only: the call that fails, from 1; 0 for all */
} Rule;
typedef struct {
    char folder[1024], pattern[256];
    Rule rules[OPERATIONS];
} Zone;
typedef struct {
    _Atomic uint32_t zones, seed;
    Zone zone[ZONES];
} Control;

static Control *control;
static _Atomic uint64_t turns;
static struct { _Atomic int zone; dev_t device; ino_t inode; } files[FILES]; /* zone: 1 for the first */

__attribute__((constructor)) static void find_control(void) {
    Dl_info self;
    char path[PATH_MAX];
    if (!dladdr((void *)find_control, &self) || !self.dli_fname) return;
    if (snprintf(path, sizeof path, "%s.control", self.dli_fname) >= (int)sizeof path) return;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *found = mmap(NULL, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED) control = found;
}

/* ------------------------------------------------------------ which files */

/* By the name that the program uses: links and ".." in it are not followed. */
static int zone_of_path(int folder, const char *path) {
    char whole[2 * PATH_MAX] = "";
    if (!control || !path) return 0;
    if (path[0] != '/') {
        char link[64];
        snprintf(link, sizeof link, folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", folder);
        ssize_t length = readlink(link, whole, PATH_MAX - 1);
        if (length < 0) return 0;
        whole[length] = '/';
        whole[length + 1] = 0;
    }
    strncat(whole, path, PATH_MAX - 1);
    for (uint32_t n = 0; n < control->zones && n < ZONES; n++) {
        const char *place = control->zone[n].folder;
        if (!strncmp(whole, place, strlen(place)) && !fnmatch(control->zone[n].pattern, whole, 0)) return (int)n + 1;
    }
    return 0;
}

static void remember(int file, int zone) {
    struct stat facts;
    if (file < 0 || file >= FILES) return;
    files[file].zone = 0;
    if (!zone || fstat(file, &facts)) return;
    files[file].device = facts.st_dev;
    files[file].inode = facts.st_ino;
    files[file].zone = zone;
}

/* Where a file is closed is not seen, so that its number may stand for another one by now. */
static int zone_of(int file, struct stat *facts) {
    if (!control || file < 0 || file >= FILES || !files[file].zone) return 0;
    int before = errno;
    int same = !fstat(file, facts) && facts->st_dev == files[file].device && facts->st_ino == files[file].inode;
    errno = before;
    return same ? files[file].zone : 0;
}

/* ------------------------------------------------------------ what happens to them */

static uint32_t luck(void) {
    uint64_t x = ((uint64_t)control->seed << 32) + (uint64_t)getpid() * 0x9e3779b97f4a7c15u + turns++;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((x ^ (x >> 31)) % MILLION);
}

/* Waits as long as the rule says, and no longer than it does: a disk that is well again holds up no call. */
static void pause_us(const _Atomic uint32_t *rule_us) {
    int before = errno;
    for (uint32_t left_us = *rule_us, turn_us; left_us && *rule_us; left_us -= turn_us) {
        turn_us = left_us < TURN_US ? left_us : TURN_US;
        struct timespec rest = {0, (long)turn_us * 1000};
        while (nanosleep(&rest, &rest) && errno == EINTR) continue; /* as a disk: no signal ends it */
    }
    errno = before;
}

/* Waits as long as the rule wants; the error that the call is to give, or 0. */
static int strike(int zone, int operation, int needs_room) {
    Rule *rule = &control->zone[zone - 1].rules[operation];
    uint64_t number = ++rule->calls;
    pause_us(&rule->delay_us);
    if (rule->stall_ppm && luck() < rule->stall_ppm) {
        rule->stalled++;
        pause_us(&rule->stall_us);
    }
    int error = (int)rule->error;
    if (!error || (error == ENOSPC && !needs_room) || luck() >= rule->error_ppm) return 0;
    if (rule->only && rule->only != number) return 0;
    rule->failed++;
    return error;
}

/* How much of a write that fails comes into the file all the same. */
static size_t torn(int zone, size_t size) {
    return control->zone[zone - 1].rules[WRITE].torn && size > 1 && luck() % 2 ? 1 + luck() % (size - 1) : 0;
}

static int fail(int error) {
    errno = error;
    return -1;
}

#define REAL(name) __typeof__(name) *real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    }
#define OPENED(folder, path, call) \
    int zone = zone_of_path(folder, path); \
    int error = zone ? strike(zone, OPEN, 1) : 0; \
    if (error) return fail(error); \
    int file = call; \
    remember(file, zone); \
    return file
#define SIMPLE(operation, needs_room, call) \
    struct stat facts; \
    int zone = zone_of(file, &facts); \
    int error = zone ? strike(zone, operation, needs_room) : 0; \
    return error ? fail(error) : call

int open(const char *path, int flags, ...) {
    REAL(open);
    MODE(flags)
    OPENED(AT_FDCWD, path, real(path, flags, mode));
}

int open64(const char *path, int flags, ...) {
    REAL(open64);
    MODE(flags)
    OPENED(AT_FDCWD, path, real(path, flags, mode));
}

int openat(int folder, const char *path, int flags, ...) {
    REAL(openat);
    MODE(flags)
    OPENED(folder, path, real(folder, path, flags, mode));
}

int openat64(int folder, const char *path, int flags, ...) {
    REAL(openat64);
    MODE(flags)
    OPENED(folder, path, real(folder, path, flags, mode));
}

ssize_t write(int file, const void *data, size_t size) {
    REAL(write);
    struct stat facts;
    int zone = zone_of(file, &facts);
    if (!zone) return real(file, data, size);
    off_t at = fcntl(file, F_GETFL) & O_APPEND ? facts.st_size : lseek(file, 0, SEEK_CUR);
    int error = strike(zone, WRITE, at + (off_t)size > facts.st_size);
    if (!error) return real(file, data, size);
    size_t part = torn(zone, size);
    return part ? real(file, data, part) : fail(error);
}

static ssize_t put(int file, const void *data, size_t size, off_t at, ssize_t (*real)(int, const void *, size_t, off_t)) {
    struct stat facts;
    int zone = zone_of(file, &facts);
    int error = zone ? strike(zone, WRITE, at + (off_t)size > facts.st_size) : 0;
    if (!error) return real(file, data, size, at);
    size_t part = torn(zone, size);
    return part ? real(file, data, part, at) : fail(error);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    REAL(pwrite);
    return put(file, data, size, at, real);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    REAL(pwrite64);
    return put(file, data, size, at, real);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(writev);
    SIMPLE(WRITE, 1, real(file, parts, count));
}

int fsync(int file) {
    REAL(fsync);
    SIMPLE(SYNC, 1, real(file));
}

int fdatasync(int file) {
    REAL(fdatasync);
    SIMPLE(SYNC, 1, real(file));
}

int ftruncate(int file, off_t size) {
    REAL(ftruncate);
    SIMPLE(TRUNCATE, size > facts.st_size, real(file, size));
}

int ftruncate64(int file, off64_t size) {
    REAL(ftruncate64);
    SIMPLE(TRUNCATE, size > facts.st_size, real(file, size));
}

int flock(int file, int how) {
    REAL(flock);
    SIMPLE(LOCK, 1, real(file, how));
}

int rename(const char *old, const char *new) {
    REAL(rename);
    int zone = zone_of_path(AT_FDCWD, new);
    int error = zone ? strike(zone, RENAME, 1) : 0;
    return error ? fail(error) : real(old, new);
}

int renameat(int from, const char *old, int to, const char *new) {
    REAL(renameat);
    int zone = zone_of_path(to, new);
    int error = zone ? strike(zone, RENAME, 1) : 0;
    return error ? fail(error) : real(from, old, to, new);
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    int zone = zone_of_path(AT_FDCWD, path);
    int error = zone ? strike(zone, MAKE_FOLDER, 1) : 0;
    return error ? fail(error) : real(path, mode);
}
