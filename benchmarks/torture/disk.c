/* Follows what a process does to the files below one folder, for limner's nets; see disk.py.
 *
 * `limner_disk` begins: the kernel then hands each system call that changes files to `act` (seccomp, SIGSYS), whoever
 * makes it; libc is no place to stand, since Rust's programs call the kernel past it. Each operation below the folder
 * is counted and written to a log with the bytes that it left. Trouble comes at one of them: SIGKILL before it is done,
 * or from it on no more room on the disk. A process that is started from the followed one dies at its first write.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* the one place from which system calls are let through */
long gate(long number, ...);
extern char gate_end[];
__asm__(".globl gate, gate_end\n.type gate, @function\n"
        "gate: mov %rdi, %rax\n mov %rsi, %rdi\n mov %rdx, %rsi\n mov %rcx, %rdx\n mov %r8, %r10\n"
        "mov %r9, %r8\n mov 8(%rsp), %r9\n syscall\n gate_end: ret\n");

/* kinds of records, as KINDS in disk.py has them, and of trouble */
enum { CREATE, LINK, UNLINK, RENAME, WRITE, TRUNCATE, SYNC, MAPPED };
enum { NONE, KILL, FULL };

typedef struct {
    long kind, inode, folder, offset, length, name_length, other_length;
} Record;

static char root[PATH_MAX];
static int log_handle, trouble, taken;
static long trouble_at, done;

static int below(const char *path) {
    size_t length = strlen(root);
    return !strncmp(path, root, length) && (!path[length] || path[length] == '/');
}

static void of_handle(int handle, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    long length = gate(SYS_readlink, link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
}

static void whole(int folder, const char *path, char *found) {
    if (path[0] == '/') { strcpy(found, path); return; }
    if (folder == AT_FDCWD) gate(SYS_getcwd, found, PATH_MAX);
    else of_handle(folder, found);
    strcat(strcat(found, "/"), path);
}

static struct stat state_of(int handle, const char *path) {
    struct stat state = {0};
    gate(SYS_newfstatat, handle, path, &state, handle == AT_FDCWD ? AT_SYMLINK_NOFOLLOW : AT_EMPTY_PATH);
    return state;
}

static long folder_of(const char *path) {
    char folder[PATH_MAX];
    *strrchr(strcpy(folder, path), '/') = 0;
    return state_of(AT_FDCWD, folder).st_ino;
}

static void put(const void *bytes, long length) {
    if (gate(SYS_write, log_handle, bytes, length) != length) gate(SYS_kill, getpid(), SIGABRT);
}

static void note(Record record, const char *name, const char *other, int handle) {
    if (log_handle < 0) return;
    record.name_length = strlen(name), record.other_length = strlen(other);
    if (*name) record.folder = folder_of(name);
    put(&record, sizeof record), put(name, record.name_length), put(other, record.other_length);
    if (record.kind != WRITE) return;
    /* read back: one way for all calls that write, whichever buffers they were given */
    static char bytes[1 << 16];
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    int reading = gate(SYS_openat, AT_FDCWD, link, O_RDONLY, 0);
    for (long at = 0, length; at < record.length; at += length) {
        length = record.length - at < (long)sizeof bytes ? record.length - at : (long)sizeof bytes;
        length = gate(SYS_pread64, reading, bytes, length, record.offset + at);
        if (length <= 0) gate(SYS_kill, getpid(), SIGABRT);
        put(bytes, length);
    }
    gate(SYS_close, reading);
}

static long call(long number, const long *a) { return gate(number, a[0], a[1], a[2], a[3], a[4], a[5]); }

/* does it, or is in the way of it */
static long tried(long number, const long *a, int needs_room) {
    done++;
    if (trouble == KILL && done >= trouble_at) gate(SYS_kill, getpid(), SIGKILL);
    if (trouble == FULL && needs_room && done >= trouble_at) return -ENOSPC;
    return call(number, a);
}

/* what is done to an open file */
static long of_file(long number, const long *a) {
    int handle = number == SYS_copy_file_range ? a[2] : number == SYS_mmap ? a[4] : a[0];
    int waits = number == SYS_fsync || number == SYS_fdatasync, sizes = number == SYS_ftruncate;
    char path[PATH_MAX];
    of_handle(handle, path);
    if (!below(path)) return call(number, a);
    while (__atomic_test_and_set(&taken, __ATOMIC_ACQUIRE)) gate(SYS_sched_yield);
    long result = number == SYS_mmap ? call(number, a) : tried(number, a, !waits && !sizes);
    struct stat state = state_of(handle, "");
    Record record = {WRITE, state.st_ino, 0, 0, result, 0, 0};
    if (number == SYS_mmap) record.kind = MAPPED, record.length = 0;
    else if (waits) record.kind = SYNC;
    else if (sizes || number == SYS_fallocate) record.kind = TRUNCATE, record.length = state.st_size;
    else if (number == SYS_pwrite64 || number == SYS_pwritev || number == SYS_pwritev2) record.offset = a[3];
    else record.offset = gate(SYS_lseek, handle, 0, SEEK_CUR) - result;
    if (record.kind == WRITE ? result > 0 : record.kind == MAPPED ? result != -1 : !result) note(record, "", "", handle);
    __atomic_clear(&taken, __ATOMIC_RELEASE);
    return result;
}

/* what is done to a name: `new` is the name that it is about, `old` that of before, if there was one */
static long of_names(long number, const long *a, int kind, int at, int old_at) {
    char new[PATH_MAX] = "", old[PATH_MAX] = "";
    whole(at > 0 ? a[at - 1] : AT_FDCWD, (const char *)a[at < 0 ? -1 - at : at], new);
    if (kind == RENAME || kind == LINK)
        whole(old_at > 0 ? a[old_at - 1] : AT_FDCWD, (const char *)a[old_at < 0 ? -1 - old_at : old_at], old);
    if (!below(new) && !below(old)) return call(number, a);
    while (__atomic_test_and_set(&taken, __ATOMIC_ACQUIRE)) gate(SYS_sched_yield);
    struct stat before = state_of(AT_FDCWD, *old ? old : new);
    int opens = number == SYS_open || number == SYS_openat;
    long result = tried(number, a, kind == CREATE && !before.st_ino);
    struct stat now = state_of(AT_FDCWD, new);
    Record record = {kind, kind == CREATE ? now.st_ino : before.st_ino, 0, *old ? folder_of(old) : 0, S_ISDIR(now.st_mode), 0, 0};
    long flags = a[number == SYS_open ? 1 : 2];
    if (result >= 0 && (!opens || !before.st_ino)) note(record, new, old, -1);
    else if (result >= 0 && (flags & O_TRUNC)) record.kind = TRUNCATE, record.length = 0, note(record, "", "", -1);
    __atomic_clear(&taken, __ATOMIC_RELEASE);
    return result;
}

static long act(long number, const long *a) {
    switch (number) {
        /* -1 - place for a name alone, place for one behind the handle of its folder */
        case SYS_open: case SYS_mkdir: return of_names(number, a, CREATE, -1, 0);
        case SYS_openat: case SYS_mkdirat: return of_names(number, a, CREATE, 1, 0);
        case SYS_unlink: case SYS_rmdir: return of_names(number, a, UNLINK, -1, 0);
        case SYS_unlinkat: return of_names(number, a, UNLINK, 1, 0);
        case SYS_rename: return of_names(number, a, RENAME, -2, -1);
        case SYS_renameat: case SYS_renameat2: return of_names(number, a, RENAME, 3, 1);
        case SYS_link: return of_names(number, a, LINK, -2, -1);
        case SYS_linkat: return of_names(number, a, LINK, 3, 1);
        default: return of_file(number, a);
    }
}

static const int PLAIN[] = {
    SYS_write, SYS_writev, SYS_pwrite64, SYS_pwritev, SYS_pwritev2, SYS_copy_file_range, SYS_sendfile, SYS_ftruncate,
    SYS_fallocate, SYS_fsync, SYS_fdatasync, SYS_mkdir, SYS_mkdirat, SYS_unlink, SYS_unlinkat, SYS_rmdir, SYS_rename,
    SYS_renameat, SYS_renameat2, SYS_link, SYS_linkat};

static void trapped(int signal, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    long a[6] = {registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                 registers[REG_R10], registers[REG_R8], registers[REG_R9]};
    int saved = errno;
    registers[REG_RAX] = act(info->si_syscall, a);
    errno = saved;
}

long limner_disk_done(void) { return done; }

/* Begins; 0 if it did. No log if its name is empty. */
int limner_disk(const char *folder, const char *log, int kind, long at) {
    log_handle = *log ? open(log, O_CREAT | O_WRONLY | O_APPEND, 0600) : -1;
    strcpy(root, folder), trouble = kind, trouble_at = at, done = 0;
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSYS, &action, NULL);
#define OF(field) offsetof(struct seccomp_data, field)
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, field)
#define IF(test, value, yes, no) BPF_JUMP(BPF_JMP | test | BPF_K, (unsigned)(value), yes, no)
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW), trap = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    struct sock_filter rules[32 + 2 * sizeof PLAIN / sizeof *PLAIN] = {
        LOAD(OF(instruction_pointer)), IF(BPF_JEQ, (long)gate_end, 0, 3),
        LOAD(OF(instruction_pointer) + 4), IF(BPF_JEQ, (long)gate_end >> 32, 0, 1), allow,
        LOAD(OF(nr)), IF(BPF_JEQ, SYS_open, 0, 4), LOAD(OF(args[1])), IF(BPF_JSET, O_CREAT | O_TRUNC, 1, 0), allow, trap,
        IF(BPF_JEQ, SYS_openat, 0, 4), LOAD(OF(args[2])), IF(BPF_JSET, O_CREAT | O_TRUNC, 1, 0), allow, trap,
        IF(BPF_JEQ, SYS_mmap, 0, 6), LOAD(OF(args[2])), IF(BPF_JSET, PROT_WRITE, 0, 2),
        LOAD(OF(args[3])), IF(BPF_JSET, MAP_SHARED, 1, 0), allow, trap};
    int count = 23;
    for (size_t place = 0; place < sizeof PLAIN / sizeof *PLAIN; place++) {
        struct sock_filter test = IF(BPF_JEQ, PLAIN[place], 0, 1);
        rules[count++] = test, rules[count++] = trap;
    }
    rules[count++] = allow;
    struct sock_fprog program = {count, rules};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}
