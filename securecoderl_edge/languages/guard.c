/* Linked into every C program: reports undefined behavior, and fixes the options of AddressSanitizer.

   It defines all that a program could define to silence the sanitizers, so such a program does not link. It replaces
   libubsan, whose start would cost each test a third of its CPU time. A report calls nothing of the C library, because a
   program may define functions of the same names. It ends the process with SANITIZER_STATUS, or with MEDIUM_STATUS after
   a fault of medium severity: a program can print any report, so its text does not decide the severity. */

#include <stddef.h>
#include <stdint.h>

#define TEXT_OF(word) #word
#define TEXT(word) TEXT_OF(word)
#if defined(__x86_64__)
enum { WRITE = 1, EXIT_GROUP = 231 };
#else
enum { WRITE = 64, EXIT_GROUP = 94 };
#endif

struct place { const char *file; uint32_t line, column; };
struct type { uint16_t kind, info; char name[1]; };
struct mismatch { struct place at; const struct type *type; unsigned char log_alignment, access; };
struct typed { struct place at; const struct type *type; };

static long kernel(long number, long first, long second, long third)
{
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second), "d"(third)
                     : "rcx", "r11", "memory");
    return result;
#else
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = first;
    register long x1 __asm__("x1") = second, x2 __asm__("x2") = third;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
#endif
}

/* Once there is a report, no other thread leaves with another status, whichever function it calls. AddressSanitizer
   writes the first line of a report before it calls us, but holds a lock from before that line until the process ends.
   Asking it where an address lies needs that lock, so a thread that saw the line waits here for the end. The address is
   on no stack: it would read the shadow of the whole stack below it, which takes longer than most programs. */
static volatile int is_reported;
const char *__asan_locate_address(void *address, char *name, size_t size, void **region, size_t *region_size);
static int status_after(int status)
{
    char name[1];
    void *region;
    size_t size;
    if (!is_reported) __asan_locate_address((void *)&is_reported, name, sizeof name, &region, &size);
    return is_reported ? SANITIZER_STATUS : status;
}
static _Noreturn void leave_with(int status) { for (;;) kernel(EXIT_GROUP, status, 0, 0); }
_Noreturn void _exit(int status) { leave_with(status_after(status)); }
_Noreturn void _Exit(int status) { _exit(status); }
__attribute__((destructor)) static void leave(void) { if (status_after(0)) leave_with(SANITIZER_STATUS); }
void __asan_on_error(void) { is_reported = 1; }

static int starts(const char *text, const char *part)
{
    while (*part) if (*text++ != *part++) return 0;
    return 1;
}

/* The last place in a text that starts with a part, or null. */
static const char *last(const char *text, const char *part)
{
    const char *found = 0;
    for (; *text; text++) if (starts(text, part)) found = text;
    return found;
}

/* The status of a fault of a kind, the first word of a text. MEDIUM_KINDS has each kind between two spaces. */
static int status_of(const char *kind)
{
    char word[64] = " ";
    size_t length = 1;
    while (length < sizeof word - 2 && *kind > ' ') word[length++] = *kind++;
    word[length] = ' ';
    return last(MEDIUM_KINDS, word) ? MEDIUM_STATUS : SANITIZER_STATUS;
}

/* AddressSanitizer calls this with its own copy of the report, before it ends the process. Before the summary the text
   can have content of the program, after it only names of threads, which are short. */
static void end_with_severity(const char *text)
{
    static const char before[] = "\nSUMMARY: AddressSanitizer: ";
    const char *summary = last(text, before), *kind = summary ? summary + sizeof before - 1 : "";
    int is_null = starts(kind, "SEGV ") && last(text, NULL_HINT);
    leave_with(is_null ? MEDIUM_STATUS : status_of(kind));
}
void __asan_set_error_report_callback(void (*function)(const char *));
int at_quick_exit(void (*function)(void));
__attribute__((constructor)) static void prepare(void)
{
    __asan_set_error_report_callback(end_with_severity);
    at_quick_exit(leave);
}

static char *put(char *to, const char *text) { while (*text) *to++ = *text++; return to; }

static char *put_number(char *to, uint32_t number)
{
    char digits[10];
    int count = 0;
    do digits[count++] = (char)('0' + number % 10); while (number /= 10);
    while (count) *to++ = digits[--count];
    return to;
}

static void report(const struct place *at, const char *kind)
{
    is_reported = 1;
    char line[200], *end = put(line, "\nSUMMARY: UndefinedBehaviorSanitizer: ");
    end = put(end, kind);
    end = put(end, " solution.c:");
    end = put_number(end, at->line);
    end = put(end, ":");
    end = put_number(end, at->column);
    end = put(end, "\n");
    kernel(WRITE, 2, (long)line, end - line);
    leave_with(status_of(kind));
}

#define HANDLER(name, kind) \
    void __ubsan_handle_##name##_abort(const struct place *at) { report(at, kind); } \
    void __ubsan_handle_##name(const struct place *at) { report(at, kind); }

HANDLER(add_overflow, "signed-integer-overflow")
HANDLER(sub_overflow, "signed-integer-overflow")
HANDLER(mul_overflow, "signed-integer-overflow")
HANDLER(negate_overflow, "signed-integer-overflow")
HANDLER(shift_out_of_bounds, "invalid-shift")
HANDLER(out_of_bounds, "out-of-bounds-index")
HANDLER(builtin_unreachable, "unreachable-call")
HANDLER(missing_return, "missing-return")
HANDLER(vla_bound_not_positive, "non-positive-vla-bound")
HANDLER(load_invalid_value, "invalid-value-load")
HANDLER(float_cast_overflow, "float-cast-overflow")
HANDLER(pointer_overflow, "pointer-overflow")
HANDLER(invalid_builtin, "invalid-builtin-use")
HANDLER(nonnull_arg, "null-argument")

void __ubsan_handle_nonnull_return_v1_abort(void *data, const struct place *at) { (void)data; report(at, "null-return"); }
void __ubsan_handle_nonnull_return_v1(void *data, const struct place *at) { (void)data; report(at, "null-return"); }

static void mismatch(const struct mismatch *data, uintptr_t pointer)
{
    uintptr_t below = ((uintptr_t)1 << data->log_alignment) - 1;
    report(&data->at, !pointer ? "null-pointer-use" : pointer & below ? "misaligned-pointer-use" : "object-too-small");
}
void __ubsan_handle_type_mismatch_v1_abort(const struct mismatch *data, uintptr_t pointer) { mismatch(data, pointer); }
void __ubsan_handle_type_mismatch_v1(const struct mismatch *data, uintptr_t pointer) { mismatch(data, pointer); }

static void division(const struct typed *data, uintptr_t divisor)
{
    /* Values wider than a register are passed by address; the only other fault of a division is an overflow. */
    int is_wide = data->type->kind == 0 && (1 << (data->type->info >> 1)) > 64;
    const uint64_t *wide = (const uint64_t *)divisor;
    int is_zero = is_wide ? !(wide[0] | wide[1]) : data->type->kind == 0 && !divisor;
    report(&data->at, is_zero ? "integer-divide-by-zero" : "signed-integer-overflow");
}
void __ubsan_handle_divrem_overflow_abort(const struct typed *data, uintptr_t a, uintptr_t b) { (void)a; division(data, b); }
void __ubsan_handle_divrem_overflow(const struct typed *data, uintptr_t a, uintptr_t b) { (void)a; division(data, b); }

/* What AddressSanitizer calls if a program defines it. */
const char *__asan_default_options(void)
{
    return "exitcode=" TEXT(SANITIZER_STATUS)
           ":detect_leaks=0:halt_on_error=1:abort_on_error=0:allocator_may_return_null=1:handle_abort=0:disable_coredump=0"
           /* 2: a program cannot handle these itself, and so hide them. */
           ":handle_segv=2:handle_sigbus=2:handle_sigfpe=2:handle_sigill=2"
           ":symbolize=0:print_legend=0:print_summary=1:color=never:malloc_context_size=2:quarantine_size_mb=16";
}
const char *__asan_default_suppressions(void) { return ""; }
const char *__lsan_default_options(void) { return ""; }
const char *__lsan_default_suppressions(void) { return ""; }
const char *__ubsan_default_options(void) { return ""; }

/* Other names of signal(), which AddressSanitizer does not watch. C11 programs get the first one from <signal.h>; the
   others are a program's own to define. */
typedef void (*handler)(int);
handler signal(int number, handler handle);
handler __sysv_signal(int number, handler handle) { return signal(number, handle); }
#define ALSO(name) __attribute__((weak)) handler name(int number, handler handle) { return signal(number, handle); }
ALSO(sysv_signal)
ALSO(bsd_signal)
ALSO(ssignal)
ALSO(sigset)
