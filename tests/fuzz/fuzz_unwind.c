/* Fuzz: trace/unwind.h. A module that exists for the loader's search alone, with functions, a sorted table and call frame entries, and a
 * stack of two pages, both among pages that cannot be read. Tables, stack and registers are right at first: then the walk must
 * find just the frames that were laid out, as many as have room, and of a call of ours their places. After changes it must still end,
 * within its room, and touch nothing that it may not.
 *
 * Input: how many functions; for each the words of its frame; the room; then steps, a byte each and what they read: poke the module,
 * store a word on the stack or in a register, replace a function's instructions or a pair of the table, make a function the code that
 * ends signal handlers. */
#include "fuzz.h"

#include <link.h>
#include <ucontext.h>

#include "os/loaded.h"
#include "trace/unwind.h"

#if defined(__x86_64__) || defined(__aarch64__)

enum { FUNCTIONS = 15, FUNCTION_BYTES = 64, INSIDE = 17, PAGE = 4096, MODULE_PAGES = 3, STACK_PAGES = 2, FRAMES = 20, CANARY = 77 };
enum { RULES = 24, ENTRY_BYTES = 4 + 4 + 4 + 4 + 1 + RULES + 3, COMMON_BYTES = 24 };

static uint8_t *module, *stack;
static unsigned functions;
static unsigned words[FUNCTIONS]; /* of each frame, the return address included */
static ucontext_t context;
static struct link_map map;

/* --- the loader's search -------------------------------------------------------------------------------------------------- */

struct unwind_object {
    unsigned long long flags;
    void *start, *end;
    struct link_map *map;
    void *frame_header;
    unsigned long long reserved[7];
};
static int (*next)(void *, struct unwind_object *);
static int find_object_here(void *address, struct unwind_object *found)
{
    if ((uintptr_t)address - (uintptr_t)module < MODULE_PAGES * PAGE) {
        *found = (struct unwind_object){ 0, module, module + MODULE_PAGES * PAGE, &map, module + PAGE, { 0 } };
        return 0;
    }
    return next == NULL ? -1 : next(address, found);
}

/* --- registers ---------------------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
enum { CONTEXT_BEHIND = 0, STORED_RETURN = 16, BASE = 7, FIRST_OFFSET = 8 };
static const uint8_t restores[] = { 0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05 };
static void set_pc(uintptr_t value) { context.uc_mcontext.gregs[REG_RIP] = (greg_t)value; }
static void set_register(unsigned index, uintptr_t value)
{
    static const int of[] = { REG_RSP, REG_RBP, REG_RBX, REG_R12, REG_RAX };
    if (index % 6 == 5)
        set_pc(value);
    else
        context.uc_mcontext.gregs[of[index % 6]] = (greg_t)value;
}
#else
enum { CONTEXT_BEHIND = sizeof(siginfo_t), STORED_RETURN = 30, BASE = 31, FIRST_OFFSET = 0 };
static const uint32_t restores[] = { 0xd2801168, 0xd4000001 };
static void set_pc(uintptr_t value) { context.uc_mcontext.pc = value; }
static void set_register(unsigned index, uintptr_t value)
{
    if (index % 6 == 5)
        set_pc(value);
    else if (index % 6 == 0)
        context.uc_mcontext.sp = value;
    else
        context.uc_mcontext.regs[31 - index % 6] = value;
}
#endif

/* --- what is right ---------------------------------------------------------------------------------------------------------------- */

static uint8_t *among_closed_pages(size_t pages)
{
    uint8_t *memory = mmap(NULL, (pages + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(memory != MAP_FAILED && mprotect(memory + PAGE, pages * PAGE, PROT_READ | PROT_WRITE) == 0);
    return memory + PAGE;
}

static uint8_t *entry_of(unsigned i) { return module + 2 * PAGE + COMMON_BYTES + i * ENTRY_BYTES; }
static uintptr_t inside(unsigned i) { return (uintptr_t)module + i * FUNCTION_BYTES + INSIDE; }
static void put32(uint8_t *at, ptrdiff_t value) { memcpy(at, &(int32_t){ (int32_t)value }, sizeof(int32_t)); }

static void lay_out_common(void)
{
    static const uint8_t known[] = {
        0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, STORED_RETURN, 1, 0x1b, 0x0c, BASE, FIRST_OFFSET, 0x80 | STORED_RETURN, 1, 0, 0
    };
    put32(module + 2 * PAGE, COMMON_BYTES - 4);
    memcpy(module + 2 * PAGE + 4, known, sizeof known);
}

static void lay_out_function(unsigned i)
{
    uint8_t *at = entry_of(i), *pair = module + PAGE + 12 + 8 * i;
    put32(at, ENTRY_BYTES - 4);
    put32(at + 4, at + 4 - (module + 2 * PAGE));
    put32(at + 8, module + i * FUNCTION_BYTES - (at + 8));
    put32(at + 12, FUNCTION_BYTES);
    at[16] = 0;
    at[17] = 0x0e;
    at[18] = (uint8_t)(words[i] * 8 & 0x7f) | 0x80;
    at[19] = (uint8_t)(words[i] * 8 >> 7);
    put32(pair, (ptrdiff_t)(i * FUNCTION_BYTES) - PAGE);
    put32(pair + 4, entry_of(i) - (module + PAGE));
}

static void lay_out(struct fuzz_input *in)
{
    static const uint8_t header[] = { 1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0 };
    uintptr_t *word = (uintptr_t *)stack;
    functions = 1 + fuzz_byte(in) % FUNCTIONS;
    memcpy(module + PAGE, header, sizeof header);
    put32(module + PAGE + 8, functions);
    lay_out_common();
    for (unsigned i = 0; i < functions; i++) {
        words[i] = 1 + fuzz_byte(in) % 60;
        lay_out_function(i);
        word += words[i];
        word[-1] = i + 1 < functions ? inside(i + 1) : 0;
    }
    set_pc(inside(0));
    set_register(0, (uintptr_t)stack);
}

/* --- what is changed ------------------------------------------------------------------------------------------------------------- */

static uintptr_t some_value(struct fuzz_input *in)
{
    uint8_t kind = fuzz_byte(in);
    uintptr_t value = fuzz_pair(in);
    switch (kind % 8) {
    case 0: return value;
    case 1: return (uintptr_t)stack + value; /* or beyond it */
    case 2: return (uintptr_t)module + value;
    case 3: return inside((unsigned)value % FUNCTIONS);
    case 4: return ~value;
    case 5: return (uintptr_t)fuzz_one + value % 64; /* code with tables of its own */
    case 6: return (uintptr_t)stack - value;
    default: return value << 47 | value;
    }
}

static void replace_rules(struct fuzz_input *in)
{
    uint8_t *at = entry_of(fuzz_byte(in) % FUNCTIONS) + 17;
    unsigned count = fuzz_byte(in) % (RULES + 1);
    memset(at, 0, RULES);
    for (unsigned i = 0; i < count; i++)
        at[i] = fuzz_byte(in);
}

static void replace_pair(struct fuzz_input *in)
{
    uint8_t *pair = module + PAGE + 12 + 8 * (fuzz_byte(in) % FUNCTIONS);
    put32(pair, (int16_t)fuzz_pair(in));
    put32(pair + 4, (ptrdiff_t)(int16_t)fuzz_pair(in) * (fuzz_byte(in) % 2 == 0 ? 1 : 1 << 16));
}

/* A handler's end, and a context above the stack pointer that it has there: the one from which the walk begins. */
static void end_handler(struct fuzz_input *in)
{
    size_t at = fuzz_below(in, STACK_PAGES * PAGE);
    memcpy(module + fuzz_byte(in) % FUNCTIONS * FUNCTION_BYTES + INSIDE, restores, sizeof restores);
    if (at + CONTEXT_BEHIND + sizeof context <= STACK_PAGES * PAGE)
        memcpy(stack + at + CONTEXT_BEHIND, &context, sizeof context);
}

static void change(struct fuzz_input *in)
{
    size_t at;
    uintptr_t value;
    switch (fuzz_byte(in) % 6) {
    case 0: at = fuzz_below(in, MODULE_PAGES * PAGE); module[at] = fuzz_byte(in); break;
    case 1:
        at = fuzz_below(in, STACK_PAGES * PAGE / sizeof value);
        value = some_value(in);
        memcpy(stack + at * sizeof value, &value, sizeof value);
        break;
    case 2: at = fuzz_byte(in); set_register((unsigned)at, some_value(in)); break;
    case 3: replace_rules(in); break;
    case 4: replace_pair(in); break;
    default: end_handler(in);
    }
}

/* --- walks ------------------------------------------------------------------------------------------------------------------------ */

static void walk_signal(unsigned room, bool right)
{
    uintptr_t frames[FRAMES + 1];
    for (unsigned i = 0; i <= FRAMES; i++)
        frames[i] = CANARY;
    uint32_t count = hak__unwind_signal(frames, room, &context);
    expect_op(count, <=, room);
    for (unsigned i = room; i <= FRAMES; i++)
        expect_eq(frames[i], CANARY);
    if (right)
        expect_eq(count, hak_min(room, functions));
    for (unsigned i = 0; right && i < count; i++)
        expect_eq(frames[i], inside(i));
}

static void walk_here(uintptr_t pc, bool right)
{
    struct hak_here here = { pc, (uintptr_t)stack, (uintptr_t)stack + PAGE, (uintptr_t)stack + STACK_PAGES * PAGE };
    uintptr_t frames[HAK_HERE_FRAMES], place = 0;
    uint16_t places[HAK_HERE_FRAMES];
    uint32_t count = hak__unwind_here(&here, frames, places);
    expect(count >= 1 && count <= HAK_HERE_FRAMES && frames[0] == pc);
    for (unsigned i = 1; i < count; i++)
        expect_op(places[i], <, STACK_PAGES * PAGE / sizeof place);
    if (right)
        expect_eq(count, hak_min(HAK_HERE_FRAMES, functions));
    for (unsigned i = 1; right && i < count; i++) {
        place += words[i - 1];
        expect_eq(frames[i], inside(i));
        expect_eq(places[i], place - 1);
    }
}

void fuzz_one(struct fuzz_input *in)
{
    if (hak__loaded_search != find_object_here) {
        next = hak__loaded_search;
        hak__loaded_search = find_object_here;
    }
    module = among_closed_pages(MODULE_PAGES);
    stack = among_closed_pages(STACK_PAGES);
    map.l_name = (char *)(uintptr_t) "/fuzzed.so";
    lay_out(in);
    unsigned room = fuzz_byte(in) % (FRAMES + 1);
    walk_signal(room, true);
    walk_here(inside(0), true);
    if (!fuzz_more(in))
        return;
    while (fuzz_more(in))
        change(in);
    for (unsigned twice = 0; twice < 2; twice++) { /* some rules are remembered */
        walk_signal(room, false);
        walk_here(inside(0), false);
    }
}

#else
void fuzz_one(struct fuzz_input *in) { (void)in; }
#endif
