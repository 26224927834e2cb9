/* Preloaded into a command by tests/striking.py: at the STRIKE_AT-th change of a file it is killed (STRIKE=kill), or from
   there on the disk is full (STRIKE=full); STRIKE=count says how many there are. STRIKE_CLOCK is seconds that the clock
   is ahead, from its STRIKE_CLOCK_FROM-th question on. Children of a command are only struck by a full disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *kind, *told;
static long at, ahead, from;
static long changes, questions; /* each change and question once, of whatever thread */

__attribute__((constructor)) static void begin(void) {
    const char *first = getenv("STRIKE_FIRST");
    char own[32];
    snprintf(own, sizeof own, "%ld", (long)getpid());
    kind = getenv("STRIKE") ? getenv("STRIKE") : "";
    told = getenv("STRIKE_TOLD");
    at = getenv("STRIKE_AT") ? atol(getenv("STRIKE_AT")) : 0;
    ahead = getenv("STRIKE_CLOCK") ? atol(getenv("STRIKE_CLOCK")) : 0;
    from = getenv("STRIKE_CLOCK_FROM") ? atol(getenv("STRIKE_CLOCK_FROM")) : 0;
    if (!first) setenv("STRIKE_FIRST", own, 1);
    else if (strcmp(first, own) && strcmp(kind, "full")) kind = "";
}

__attribute__((destructor)) static void end(void) {
    FILE *file = !strcmp(kind, "count") && told ? fopen(told, "w") : NULL;
    if (file) fprintf(file, "%ld", changes), fclose(file);
}

/* Whether this change fails; `grows`: one that takes room, which a removal does not. */
static int struck(int grows) {
    long number;
    if (!kind || !*kind) return 0;
    number = __sync_add_and_fetch(&changes, 1);
    if (!strcmp(kind, "kill") && number == at) kill(getpid(), SIGKILL);
    if (strcmp(kind, "full") || number < at || !grows) return 0;
    errno = ENOSPC;
    return 1;
}

static int is_file(int handle) {
    struct stat held;
    return !fstat(handle, &held) && S_ISREG(held.st_mode);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define OPEN(name, DIRFD_ARG, DIRFD)                                                                  \
    int name(DIRFD_ARG const char *path, int flags, ...) {                                            \
        va_list rest;                                                                                 \
        mode_t mode;                                                                                  \
        va_start(rest, flags), mode = va_arg(rest, mode_t), va_end(rest);                             \
        if ((flags & O_CREAT) && strncmp(path, "/dev/", 5) && struck(1)) return -1;                   \
        return REAL(name)(DIRFD path, flags, mode);                                                   \
    }
#define COMMA ,
OPEN(open, , )
OPEN(open64, , )
OPEN(openat, int folder COMMA, folder COMMA)
OPEN(openat64, int folder COMMA, folder COMMA)

#define CHANGE(kind_of, name, grows, words, call) \
    kind_of name words { return struck(grows) ? -1 : REAL(name) call; }
CHANGE(int, rename, 1, (const char *old, const char *new), (old, new))
CHANGE(int, renameat, 1, (int a, const char *old, int b, const char *new), (a, old, b, new))
CHANGE(int, link, 1, (const char *old, const char *new), (old, new))
CHANGE(int, linkat, 1, (int a, const char *old, int b, const char *new, int flags), (a, old, b, new, flags))
CHANGE(int, symlink, 1, (const char *aim, const char *path), (aim, path))
CHANGE(int, mkdir, 1, (const char *path, mode_t mode), (path, mode))
CHANGE(int, mkdirat, 1, (int folder, const char *path, mode_t mode), (folder, path, mode))
CHANGE(int, unlink, 0, (const char *path), (path))
CHANGE(int, unlinkat, 0, (int folder, const char *path, int flags), (folder, path, flags))
CHANGE(int, rmdir, 0, (const char *path), (path))
#define WRITE(name, words, call, handle) \
    ssize_t name words { return is_file(handle) && struck(1) ? -1 : REAL(name) call; }
WRITE(write, (int to, const void *what, size_t size), (to, what, size), to)
WRITE(pwrite64, (int to, const void *what, size_t size, off64_t place), (to, what, size, place), to)
WRITE(sendfile64, (int to, int out_of, off64_t *place, size_t size), (to, out_of, place, size), to)
WRITE(copy_file_range, (int out_of, off64_t *a, int to, off64_t *b, size_t size, unsigned flags),
      (out_of, a, to, b, size, flags), to)

static time_t later(void) { return ahead && __sync_add_and_fetch(&questions, 1) >= from ? ahead : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    int code = REAL(clock_gettime)(clock, now);
    if (!code && clock == CLOCK_REALTIME) now->tv_sec += later();
    return code;
}

time_t time(time_t *now) {
    struct timespec said;
    clock_gettime(CLOCK_REALTIME, &said);
    return now ? (*now = said.tv_sec) : said.tv_sec;
}
