/* Startup code of programs on the emulated board (`-machine mps2-an385`): no operating system, no semihosting.

   Standard output and error are two UARTs, and a third one gets the exit status before the board resets. Standard input is in
   memory from INPUT on, its length first. All names are reserved ones, so that a program may use every other name. */

#include <stddef.h>
#include <stdint.h>

#define WORD(address) (*(volatile uint32_t *)(address))
enum { OUT = 0x40004000, ERROR = 0x40005000, STATUS = 0x40006000, DATA = 0, STATE = 4, CONTROL = 8, IS_FULL = 1, SEND = 1 };
enum { INPUT = 0x21000000, RESET_CONTROL = 0xE000ED0C, RESET = 0x05FA0004, NO_FILE = -1, FAULT_STATUS = 139 };

extern char __sce_data_load[], __sce_data[], __sce_data_end[], __sce_bss[], __sce_bss_end[], __sce_memory_end[],
    __sce_stack_top[];
extern void (*__sce_constructors[])(void), (*__sce_constructors_end[])(void);
int main(void);
_Noreturn void exit(int status);

static uint32_t taken;
static char *heap_end = __sce_bss_end;

static void send(uint32_t uart, char byte)
{
    WORD(uart + CONTROL) = SEND;
    while (WORD(uart + STATE) & IS_FULL)
        ;
    WORD(uart + DATA) = (unsigned char)byte;
}

/* What newlib asks a system for. */

_Noreturn void _exit(int status)
{
    send(STATUS, (char)status);
    WORD(RESET_CONTROL) = RESET;
    for (;;)
        ;
}

int _write(int file, const char *text, int length)
{
    for (int n = 0; n < length; n++)
        send(file == 2 ? ERROR : OUT, text[n]);
    return length;
}

int _read(int file, char *to, int length)
{
    uint32_t left = WORD(INPUT) - taken, count = (uint32_t)length < left ? (uint32_t)length : left;
    if (file != 0)
        return NO_FILE;
    for (uint32_t n = 0; n < count; n++)
        to[n] = ((const char *)INPUT)[4 + taken++];
    return (int)count;
}

void *_sbrk(ptrdiff_t bytes)
{
    char *before = heap_end;
    if (bytes > __sce_memory_end - heap_end || bytes < __sce_bss_end - heap_end)
        return (void *)-1;
    heap_end += bytes;
    return before;
}

int _open(const char *name, int flags, int mode) { (void)name, (void)flags, (void)mode; return NO_FILE; }
int _close(int file) { (void)file; return NO_FILE; }
int _lseek(int file, int offset, int from) { (void)file, (void)offset, (void)from; return NO_FILE; }
int _fstat(int file, void *status) { (void)file, (void)status; return NO_FILE; }
int _isatty(int file) { (void)file; return 0; }
int _getpid(void) { return 1; }
int _kill(int process, int signal) { (void)process; _exit(128 + signal); }
void _init(void) {}
void _fini(void) {}

void __sce_start(void)
{
    char *from = __sce_data_load;
    for (char *to = __sce_data; to < __sce_data_end;)
        *to++ = *from++;
    for (char *to = __sce_bss; to < __sce_bss_end;)
        *to++ = 0;
    for (void (**each)(void) = __sce_constructors; each < __sce_constructors_end; each++)
        (*each)();
    exit(main());
}

void __sce_report_fault(void)
{
    static const char text[] = "the processor met a fault: bad address, instruction or stack\n";
    _write(2, text, sizeof text - 1);
    _exit(FAULT_STATUS);
}

/* A stack that has overflowed is of no use, so this one begins anew. */
__attribute__((naked)) static void fault(void)
{
    __asm__("ldr r0, =__sce_stack_top\n mov sp, r0\n b __sce_report_fault");
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    __sce_stack_top, (const void *)__sce_start, (const void *)fault, (const void *)fault, (const void *)fault,
    (const void *)fault, (const void *)fault, 0, 0, 0, 0, (const void *)fault, (const void *)fault, 0,
    (const void *)fault, (const void *)fault,
};
