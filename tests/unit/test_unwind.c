/* Stacks: through functions with tables; through generated code, by its frame pointers; and what generated code may have in that
 * register instead; below signal handlers. */
#include <link.h>
#include <sys/time.h>

#include "support/check.h"
#include "trace/unwind.h"

enum { FRAMES = 64, DEEP = 40 };

typedef void called(void *argument);
typedef void generated(called *function, void *argument);

static uintptr_t frames[FRAMES];
static uint32_t count;

#if defined(__x86_64__)
static const uint8_t keeps_frames[] = { 0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20,            /* push rbp; mov rbp, rsp; sub rsp, 32 */
                                        0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0,            /* mov rax, rdi; mov rdi, rsi; call rax */
                                        0xc9, 0xc3 };                                              /* leave; ret */
static const uint8_t small_number[] = { 0x55, 0xbd, 0x10, 0x00, 0x00, 0x00,                        /* push rbp; mov ebp, 16 */
                                        0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3 };
static const uint8_t into_the_stack[] = { 0x55, 0x48, 0x8d, 0x6c, 0x24, 0x08,                      /* push rbp; lea rbp, [rsp + 8] */
                                          0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3 };
static const uint8_t trampoline[] = { 0x48, 0x83, 0xec, 0x08, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7,  /* sub rsp, 8; mov rax, rdi; mov rdi, rsi */
                                      0xff, 0xd0, 0x48, 0x83, 0xc4, 0x08, 0xc3 };                  /* call rax; add rsp, 8; ret */
#elif defined(__aarch64__)
/* stp x29, x30, [sp, #-N]!; mov x29, sp; mov x9, x0; mov x0, x1; blr x9; ldp x29, x30, [sp], #N; ret. In
 * keeps_frames there are 16 bytes below the pair; in small_number x29 becomes 16, in into_the_stack sp + 16, where two zeros are. */
static const uint32_t trampoline[] = { 0xa9bf7bfd, 0x910003fd, 0xaa0003e9, 0xaa0103e0, 0xd63f0120, 0xa8c17bfd, 0xd65f03c0 };
static const uint32_t keeps_frames[] = { 0xa9bf7bfd, 0x910003fd, 0xd10043ff, 0xaa0003e9, 0xaa0103e0, 0xd63f0120, 0x910043ff, 0xa8c17bfd, 0xd65f03c0 };
static const uint32_t small_number[] = { 0xa9be7bfd, 0xd280021d, 0xaa0003e9, 0xaa0103e0, 0xd63f0120, 0xa8c27bfd, 0xd65f03c0 };
static const uint32_t into_the_stack[] = { 0xa9be7bfd, 0xa9017fff, 0x910043fd, 0xaa0003e9, 0xaa0103e0, 0xd63f0120, 0xa8c27bfd, 0xd65f03c0 };
#elif defined(__riscv)
/* addi sp, sp, -32; sd ra, 24(sp); sd s0, 16(sp); (two zeros at sp;) s0 = sp + 32, 16 or sp + 16; mv t0, a0; mv a0, a1; jalr t0; back. */
#define ENTER 0xfe010113, 0x00113c23, 0x00813823
#define CALL_AND_LEAVE 0x00050293, 0x00058513, 0x000280e7, 0x01813083, 0x01013403, 0x02010113, 0x00008067
static const uint32_t keeps_frames[] = { ENTER, 0x02010413, CALL_AND_LEAVE }, trampoline[] = { ENTER, 0x02010413, CALL_AND_LEAVE };
static const uint32_t small_number[] = { ENTER, 0x01000413, CALL_AND_LEAVE };
static const uint32_t into_the_stack[] = { ENTER, 0x00013023, 0x00013423, 0x01010413, CALL_AND_LEAVE };
#endif

static void take(void *argument)
{
    (void)argument;
    count = hak__unwind(frames, FRAMES);
}

static generated *made_of(const void *code, size_t bytes)
{
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(memory != MAP_FAILED);
    memcpy(memory, code, bytes);
    expect_eq(mprotect(memory, 4096, PROT_READ | PROT_EXEC), 0);
    __builtin___clear_cache((char *)memory, (char *)memory + bytes);
    generated *function;
    memcpy(&function, &memory, sizeof function);
    return function;
}

/* How many of the frames lie in the page of the generated code; the place of the first one. */
static uint32_t frames_in(generated *function, uint32_t *first)
{
    uintptr_t start;
    uint32_t found = 0;
    memcpy(&start, &function, sizeof start);
    for (uint32_t i = count; i-- > 0;)
        if (frames[i] - start < 4096) {
            *first = i;
            found++;
        }
    return found;
}

static __attribute__((noinline)) uint32_t depth_without(void)
{
    take(NULL);
    return count;
}

/* Its return address is signed, where processors do that. */
#if defined(__aarch64__)
__attribute__((target("branch-protection=pac-ret")))
#endif
static __attribute__((noinline)) uint32_t depth_signed(void)
{
    take(NULL);
    return count;
}

static void through_signed_frames(void **state)
{
    (void)state;
    uint32_t plain = depth_without();
    expect_eq(depth_signed(), plain);
}

static void through_generated_code(void **state)
{
    (void)state;
    uint32_t first = 0, plain = depth_without();
    if (is_emulated())
        skip();
    generated *function = made_of(keeps_frames, sizeof keeps_frames);
    function(take, NULL);
    expect_eq(frames_in(function, &first), 1);
    expect_eq(first, 1);                 /* behind take */
    expect_op(count, >=, plain);         /* and on to main */
}

struct call {
    called *function;
    void *argument;
};

static void *do_call(void *argument)
{
    struct call *call = argument;
    call->function(call->argument);
    return NULL;
}

/* The end of a thread's stack is always known; of the first one's not under an emulator. */
static void on_thread(called *function, void *argument)
{
    pthread_t thread;
    struct call call = { function, argument };
    expect_eq(pthread_create(&thread, NULL, do_call, &call), 0);
    expect_eq(pthread_join(thread, NULL), 0);
}

struct chain {
    generated *function;
    unsigned left;
};

static void further(void *argument)
{
    struct chain *chain = argument;
    if (chain->left-- == 0)
        take(NULL);
    else
        chain->function(further, chain);
    __asm__ volatile("");                /* no jump in place of the call */
}

static void generated_code_and_functions_in_turn(void **state)
{
    (void)state;
    uint32_t first = 0;
    struct chain chain = { made_of(keeps_frames, sizeof keeps_frames), 5 };
    on_thread(further, &chain);
    expect_eq(frames_in(chain.function, &first), 5);
}

/* The room is full before main. */
static void deep_generated_code(void **state)
{
    (void)state;
    uint32_t first = 0;
    struct chain chain = { made_of(keeps_frames, sizeof keeps_frames), DEEP };
    on_thread(further, &chain);
    expect_eq(count, FRAMES);
    expect_op(frames_in(chain.function, &first), >=, FRAMES / 2 - 2);
}

static void other_values_lead_nowhere(void **state)
{
    (void)state;
    uint32_t first = 0;
    generated *function = made_of(small_number, sizeof small_number);
    function(take, NULL);
    expect_eq(frames_in(function, &first), 1);
    expect_eq(first, count - 1);
    function = made_of(into_the_stack, sizeof into_the_stack);
    function(take, NULL);
    expect_eq(frames_in(function, &first), 1);
    expect_eq(first, count - 1);
}

/* Which need not keep the frame pointer: here the caller's has any value. */
static void cpython_trampolines(void **state)
{
    (void)state;
    uint32_t first = 0;
    struct chain chain = { made_of(trampoline, sizeof trampoline), 5 };
    on_thread(further, &chain);
    expect_eq(frames_in(chain.function, &first), 5);
    expect_op(count, >=, 5 + 5 + 3);     /* further, the trampoline, again and again; do_call, and who has called it */
}

static volatile sig_atomic_t waits;

static void on_signal(int number)
{
    (void)number;
    if (waits)
        take(NULL);
    waits = 0;
}

/* By a timer where the C library has no tables for raise. */
static __attribute__((noinline)) void interrupted_here(void)
{
    waits = 1;
#if defined(__GLIBC__)
    raise(SIGALRM);
#endif
    while (waits)
        continue;
}

static bool leads_through(void (*function)(void))
{
    uintptr_t start;
    memcpy(&start, &function, sizeof start);
    for (uint32_t i = 0; i < count; i++)
        if (frames[i] - start < 256)
            return true;
    return false;
}

/* On the same stack, and on one that lies elsewhere and ends at a page that cannot be read. */
static void below_a_signal_handler(void **state)
{
    (void)state;
    size_t size = (size_t)64 << 10, page = (size_t)sysconf(_SC_PAGESIZE);
    struct sigaction action = { .sa_handler = on_signal };
    struct itimerval often = { { 0, 1000 }, { 0, 1000 } }, never = { { 0, 0 }, { 0, 0 } };
    uint32_t plain = depth_without();
    sigaction(SIGALRM, &action, NULL);
    expect_eq(setitimer(ITIMER_REAL, &often, NULL), 0);
    interrupted_here();
    expect(leads_through(interrupted_here));
    expect_op(count, >, plain);
    char *memory = mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(memory != MAP_FAILED && mprotect(memory + size, page, PROT_NONE) == 0);
    expect_eq(sigaltstack(&(stack_t){ .ss_sp = memory, .ss_size = size }, NULL), 0);
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGALRM, &action, NULL);
    interrupted_here();
    expect(leads_through(interrupted_here));
    expect_op(count, >, plain);
    expect_eq(setitimer(ITIMER_REAL, &never, NULL), 0);
    expect_eq(sigaltstack(&(stack_t){ .ss_flags = SS_DISABLE }, NULL), 0);
}

#if defined(__x86_64__)
/* Its table says that its frame is 8 bytes smaller than it is; there stands this. */
uintptr_t wrong_return;
void wrong_table(called *function);
__asm__(".text\n.type wrong_table, @function\nwrong_table:\n.cfi_startproc\nsub $24, %rsp\n.cfi_def_cfa_offset 24\n"
        "movq wrong_return(%rip), %rax\nmovq %rax, 16(%rsp)\ncall *%rdi\nadd $24, %rsp\nret\n.cfi_endproc\n"
        ".size wrong_table, . - wrong_table");

static void a_table_that_leads_nowhere(void **state)
{
    (void)state;
    wrong_return = 7;
    wrong_table(take);
    expect_eq(frames[2], 7);             /* behind take and wrong_table */
    void *closed = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    wrong_return = (uintptr_t)closed;
    wrong_table(take);
    expect_eq(frames[2], wrong_return);  /* and is not looked at */
    munmap(closed, 4096);
}

/* A frame of 32 bytes; the size of arguments, which means nothing here, marks the place in its table. Eight bytes below its end is 7. */
void marked_table(called *function);
__asm__(".text\n.type marked_table, @function\nmarked_table:\n.cfi_startproc\nsub $24, %rsp\n"
        ".cfi_escape 0x2e, 0x91, 0x92, 0x13\n.cfi_def_cfa_offset 32\n"
        "movq $7, 16(%rsp)\ncall *%rdi\nadd $24, %rsp\nret\n.cfi_endproc\n.size marked_table, . - marked_table");

/* The tables of the program, the first module that is told. */
static int find_tables(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct { uint8_t *start, *end; } *tables = argument;
    (void)size;
    uintptr_t header = 0;
    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_GNU_EH_FRAME)
            header = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type == PT_LOAD && header - start < info->dlpi_phdr[i].p_memsz) {
            tables->start = (uint8_t *)header;   /* the tables lie behind it */
            tables->end = (uint8_t *)start + info->dlpi_phdr[i].p_memsz;
        }
    }
    return 1;
}

/* What has been remembered of a place does not hold when other tables have come there, as when a plugin is replaced. */
static void tables_that_change(void **state)
{
    (void)state;
    struct { uint8_t *start, *end; } tables = { NULL, NULL };
    const uint8_t mark[] = { 0x2e, 0x91, 0x92, 0x13, 0x0e, 32 };
    for (int turn = 0; turn < 3; turn++) {
        marked_table(take);
        expect_op(count, >, 3);
        expect_op(frames[2], !=, 7);
    }
    dl_iterate_phdr(find_tables, &tables);
    uint8_t *place = memmem(tables.start, (size_t)(tables.end - tables.start), mark, sizeof mark);
    expect(place != NULL);
    uintptr_t page = (uintptr_t)place & ~(uintptr_t)4095;
    expect_eq(mprotect((void *)page, 8192, PROT_READ | PROT_WRITE), 0);
    place[5] = 24;
    marked_table(take);
    expect_eq(frames[2], 7);
    place[5] = 32;
    marked_table(take);
    expect_op(frames[2], !=, 7);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(through_signed_frames),
        cmocka_unit_test(through_generated_code),
        cmocka_unit_test(generated_code_and_functions_in_turn),
        cmocka_unit_test(deep_generated_code),
        cmocka_unit_test(cpython_trampolines),
        cmocka_unit_test(other_values_lead_nowhere),
        cmocka_unit_test(below_a_signal_handler),
#if defined(__x86_64__)
        cmocka_unit_test(a_table_that_leads_nowhere),
        cmocka_unit_test(tables_that_change),
#endif
    };
    hak__unwind_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
