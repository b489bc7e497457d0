/* Puts limits and layers on itself and becomes another program, without the C library.

   Spawning this costs a supervisor a third of a fork of its interpreter. It runs as ``launch WORDS...`` with the file to
   become at descriptor EXECUTABLE and a description at EXECUTABLE + 1, in the order in which `begin` reads it; what it
   cannot do ends it with status FAILED. Linked alone, it needs no dynamic linker. */

#include <stdint.h>

enum { FAILED = 71, MOST_BYTES = 1 << 15 };
#if defined(__x86_64__)
enum { CLOSE = 3, PREAD = 17, KILL = 62, FCNTL = 72, SETPGID = 109, GETPID = 39, GETPPID = 110, PERSONALITY = 135,
       PRCTL = 157, EXIT_GROUP = 231, OPENAT = 257, PRLIMIT = 302, SECCOMP = 317, EXECVEAT = 322, SENDMSG = 46 };
__asm__(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call begin\n");
#else
enum { CLOSE = 57, PREAD = 67, KILL = 129, FCNTL = 25, SETPGID = 154, GETPID = 172, GETPPID = 173, PERSONALITY = 92,
       PRCTL = 167, EXIT_GROUP = 94, OPENAT = 56, PRLIMIT = 261, SECCOMP = 277, EXECVEAT = 281, SENDMSG = 211 };
__asm__(".globl _start\n_start: mov x0, sp\n bl begin\n");
#endif
enum { CLOSE_RANGE = 436, CREATE_RULESET = 444, ADD_RULE = 445, RESTRICT_SELF = 446 };
enum { CURRENT_FOLDER = -100, PATH_ONLY = 010000000 | 02000000, SET_FLAGS = 2, CLOSE_ON_EXEC = 1, EMPTY_PATH = 0x1000,
       NO_RANDOM_ADDRESSES = 0x40000, DEATH_SIGNAL = 1, SET_SECCOMP = 22, FILTER_MODE = 2, BENEATH = 1, SIGKILL = 9,
       SET_MODE_FILTER = 1, NEW_LISTENER = 8, SOCKET_LEVEL = 1, DESCRIPTORS = 1, SET_TRACER = 0x59616d61 };

static long kernel(long number, long a, long b, long c, long d, long e)
{
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
#else
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c, x3 __asm__("x3") = d, x4 __asm__("x4") = e;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    return x0;
#endif
}

static long must(long result)
{
    if (result < 0)
        for (;;) kernel(EXIT_GROUP, FAILED, 0, 0, 0, 0);
    return result;
}

static uint64_t description[MOST_BYTES / 8], *next = description;

static void limit(void)
{
    for (uint64_t count = *next++; count; count--, next += 3)
        must(kernel(PRLIMIT, 0, (long)next[0], (long)(next + 1), 0, 0));
}

static void restrict_files(void)
{
    uint64_t size = *next++, *handled = next;
    next += 3;
    if (!size)
        return;
    long ruleset = must(kernel(CREATE_RULESET, (long)handled, (long)size, 0, 0, 0));
    for (uint64_t count = *next++; count; count--) {
        struct __attribute__((packed)) { uint64_t rights; int32_t folder; } rule = {next[0], 0};
        long at = kernel(OPENAT, CURRENT_FOLDER, (long)(next + 2), PATH_ONLY, 0, 0);
        next += 2 + next[1];
        if (at < 0)
            continue; /* not on this system */
        rule.folder = (int32_t)at;
        must(kernel(ADD_RULE, ruleset, BENEATH, (long)&rule, 0, 0));
        kernel(CLOSE, at, 0, 0, 0, 0);
    }
    must(kernel(RESTRICT_SELF, ruleset, 0, 0, 0, 0));
    kernel(CLOSE, ruleset, 0, 0, 0, 0);
}

/* To the notary, with the id of our parent. */
static void send_listener(long listener)
{
    int32_t parent = (int32_t)kernel(GETPPID, 0, 0, 0, 0, 0);
    struct { void *start; uint64_t length; } part = {&parent, sizeof parent};
    struct { uint64_t length; int32_t level, kind, descriptor; } control = {20, SOCKET_LEVEL, DESCRIPTORS, (int32_t)listener};
    struct { void *name; uint64_t name_length; void *parts; uint64_t part_count; void *control; uint64_t control_length, flags; }
        message = {0, 0, &part, 1, &control, 20, 0};
    must(kernel(SENDMSG, EXECUTABLE + 2, (long)&message, 0, 0, 0));
    kernel(CLOSE, listener, 0, 0, 0, 0);
    kernel(CLOSE, EXECUTABLE + 2, 0, 0, 0, 0);
}

static void filter_calls(uint64_t notary)
{
    struct { uint16_t length; uint64_t *instructions; } program = {(uint16_t)*next++, 0};
    uint64_t place_of_id = *next++;
    if (!program.length)
        return;
    program.instructions = next;
    *(uint32_t *)((char *)next + place_of_id) = (uint32_t)kernel(GETPID, 0, 0, 0, 0, 0);
    if (!notary) {
        must(kernel(PRCTL, SET_SECCOMP, FILTER_MODE, (long)&program, 0, 0));
        return;
    }
    kernel(PRCTL, SET_TRACER, (long)notary, 0, 0, 0); /* it reads the paths that are asked for; most kernels need no leave */
    send_listener(must(kernel(SECCOMP, SET_MODE_FILTER, NEW_LISTENER, (long)&program, 0, 0)));
}

void begin(long *stack)
{
    char **words = (char **)(stack + 1), **environment = words + stack[0] + 1;
    must(kernel(PREAD, EXECUTABLE + 1, (long)description, MOST_BYTES, 0, 0));
    uint64_t parent = *next++, leads_group = *next++, streams = *next++, notary = *next++;
    kernel(CLOSE_RANGE, (long)streams, EXECUTABLE - 1, 0, 0, 0);
    kernel(CLOSE, EXECUTABLE + 1, 0, 0, 0, 0);
    kernel(CLOSE_RANGE, EXECUTABLE + (notary ? 3 : 2), 0xffffffff, 0, 0, 0);
    must(kernel(FCNTL, EXECUTABLE, SET_FLAGS, CLOSE_ON_EXEC, 0, 0));
    limit();
    must(kernel(PERSONALITY, NO_RANDOM_ADDRESSES, 0, 0, 0, 0));
    if (leads_group)
        must(kernel(SETPGID, 0, 0, 0, 0, 0));
    must(kernel(PRCTL, DEATH_SIGNAL, SIGKILL, 0, 0, 0));
    if ((uint64_t)kernel(GETPPID, 0, 0, 0, 0, 0) != parent)
        kernel(KILL, kernel(GETPID, 0, 0, 0, 0, 0), SIGKILL, 0, 0, 0);
    restrict_files();
    filter_calls(notary);
    must(kernel(EXECVEAT, EXECUTABLE, (long)"", (long)(words + 1), (long)environment, EMPTY_PATH));
}
