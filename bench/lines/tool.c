/*
 * A valgrind tool that counts which cache lines move between cores.  The program runs unmodified, with whatever
 * allocator it has loaded; each thread is a core of its own, 64 at most, and the machine says that it has 64.
 *
 * The functions that the tool watches, all of them in the program: bench_op (one operation begins: after `--skip`
 * of them counting begins, after `--count` more it ends), lines_begin and lines_end (begin and end of counting,
 * for programs without operations), bench_map (what it maps belongs to the program, not to the allocator).
 */
#include "calls.h"
#include "events.h"
#include "prefetch.h"
#include "report.h"
#include "turns.h"

#include "libvex_ir.h"
#include "pub_tool_clientstate.h"
#include "pub_tool_debuginfo.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_machine.h"
#include "pub_tool_options.h"
#include "pub_tool_tooliface.h"

static const HChar *option_out = "lines.json";
static Long option_skip, option_count = -1, option_seed = 1, option_turn = 8;
static ULong operations;

/* --- what the program is doing ----------------------------------------------------------------------------- */

static void finish(void)
{
    events_end();
    report_write(option_out);
    VG_(exit)(0);
}

static void on_operation(void)
{
    if (operations++ == (ULong)option_skip)
        events_begin();
    else if (option_count > 0 && operations > (ULong)(option_skip + option_count))
        finish();
    events_counted.operations++;
}

struct watched {
    const HChar *name;
    void (*call)(void);
};

static const struct watched watched[] = {
    {"bench_op", on_operation}, {"lines_begin", events_begin}, {"lines_end", finish}, {"bench_map", calls_own_follows},
};

static const struct watched *watched_at(Addr code)
{
    const HChar *name;
    if (VG_(get_fnname_if_entry)(VG_(current_DiEpoch)(), code, &name))
        for (UInt i = 0; i < sizeof watched / sizeof watched[0]; i++)
            if (VG_(strcmp)(name, watched[i].name) == 0)
                return &watched[i];
    return NULL;
}

static Bool is_program(Addr code)
{
    const HChar *object;
    if (!VG_(get_objname)(VG_(current_DiEpoch)(), code, &object) || VG_(args_the_exename) == NULL)
        return False;
    const HChar *file = VG_(strrchr)(object, '/'), *program = VG_(strrchr)(VG_(args_the_exename), '/');
    return VG_(strcmp)(file != NULL ? file + 1 : object, program != NULL ? program + 1 : VG_(args_the_exename)) == 0;
}

/* --- instrumentation --------------------------------------------------------------------------------------- */

struct writing {
    IRSB *to;
    const IRSB *from;
    Addr code; /* of the instruction at hand */
    UInt by_program;
    UInt instructions; /* not yet added */
};

static IRExpr *number(UWord value)
{
    return IRExpr_Const(IRConst_U64(value));
}

/* The address that a statement stores to or swaps at, or NULL. */
static IRExpr *stored_at(const IRStmt *statement)
{
    switch (statement->tag) {
    case Ist_Store:
        return statement->Ist.Store.addr;
    case Ist_StoreG:
        return statement->Ist.StoreG.details->addr;
    case Ist_CAS:
        return statement->Ist.CAS.details->addr;
    default:
        return NULL;
    }
}

static IRExpr *loaded_at(const IRStmt *statement)
{
    if (statement->tag == Ist_WrTmp && statement->Ist.WrTmp.data->tag == Iex_Load)
        return statement->Ist.WrTmp.data->Iex.Load.addr;
    return statement->tag == Ist_LoadG ? statement->Ist.LoadG.details->addr : NULL;
}

/* Whether the same instruction also loads (step -1) or also stores (step 1) there. */
static Bool has_partner(const IRSB *block, Int at, Int step, IRExpr *address)
{
    for (Int i = at + step; i >= 0 && i < block->stmts_used && block->stmts[i]->tag != Ist_IMark; i += step) {
        IRExpr *other = step > 0 ? stored_at(block->stmts[i]) : loaded_at(block->stmts[i]);
        if (other != NULL && eqIRAtom(other, address))
            return True;
    }
    return False;
}

static void add_access(struct writing *w, IRExpr *address, UInt size, enum cache_access access, IRExpr *guard)
{
    UWord packed = size | (UWord)access << 8 | (UWord)w->by_program << 12;
    IRDirty *call = unsafeIRDirty_0_N(3, "events_access", VG_(fnptr_to_fnentry)(&events_access),
                                      mkIRExprVec_3(address, number(packed), number(w->code)));
    if (guard != NULL)
        call->guard = guard;
    addStmtToIRSB(w->to, IRStmt_Dirty(call));
}

static IRExpr *computed(struct writing *w, IRType type, IRExpr *value)
{
    IRTemp temporary = newIRTemp(w->to->tyenv, type);
    addStmtToIRSB(w->to, IRStmt_WrTmp(temporary, value));
    return IRExpr_RdTmp(temporary);
}

/* Whether a swap stored, as a word; a double one counts as if it had. */
static IRExpr *has_swapped(struct writing *w, const IRCAS *swap)
{
    static const IROp compare[] = {Iop_CasCmpEQ8, Iop_CasCmpEQ16, Iop_CasCmpEQ32, Iop_CasCmpEQ64};
    if (swap->oldHi != IRTemp_INVALID)
        return number(1);
    UInt size = (UInt)sizeofIRType(typeOfIRExpr(w->to->tyenv, swap->dataLo));
    IROp operation = compare[size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3];
    IRExpr *equal = computed(w, Ity_I1, IRExpr_Binop(operation, IRExpr_RdTmp(swap->oldLo), swap->expdLo));
    return computed(w, Ity_I64, IRExpr_Unop(Iop_1Uto64, equal));
}

static void add_swap(struct writing *w, const IRCAS *swap)
{
    UInt size = (UInt)sizeofIRType(typeOfIRExpr(w->to->tyenv, swap->dataLo)) * (swap->oldHi != IRTemp_INVALID ? 2 : 1);
    UWord packed = size | (UWord)CACHE_MODIFY << 8 | (UWord)w->by_program << 12;
    IRExpr **arguments = mkIRExprVec_4(swap->addr, number(packed), number(w->code), has_swapped(w, swap));
    addStmtToIRSB(w->to, IRStmt_Dirty(unsafeIRDirty_0_N(0, "events_swap", VG_(fnptr_to_fnentry)(&events_swap), arguments)));
}

static void add_instructions(struct writing *w)
{
    IRExpr *where = number((UWord)&events_instructions);
    if (w->instructions == 0)
        return;
    IRExpr *before = computed(w, Ity_I64, IRExpr_Load(Iend_LE, Ity_I64, where));
    IRExpr *after = computed(w, Ity_I64, IRExpr_Binop(Iop_Add64, before, number(w->instructions)));
    addStmtToIRSB(w->to, IRStmt_Store(Iend_LE, where, after));
    w->instructions = 0;
}

static IRExpr *register_value(struct writing *w, Int offset)
{
    return computed(w, Ity_I64, IRExpr_Get(offset, Ity_I64));
}

/* Takes the line as a writer would, without writing. */
static void add_prefetch(struct writing *w, const struct prefetch *prefetch)
{
    IRExpr *address = prefetch->base >= 0 ? register_value(w, prefetch->base) : number(0);
    if (prefetch->index >= 0) {
        IRExpr *index = register_value(w, prefetch->index);
        index = computed(w, Ity_I64, IRExpr_Binop(Iop_Shl64, index, IRExpr_Const(IRConst_U8((UChar)prefetch->shift))));
        address = computed(w, Ity_I64, IRExpr_Binop(Iop_Add64, address, index));
    }
    address = computed(w, Ity_I64, IRExpr_Binop(Iop_Add64, address, number((UWord)prefetch->distance)));
    add_access(w, address, CACHE_WORD, CACHE_CLAIM, NULL);
}

static void begin_instruction(struct writing *w, Addr code, UInt length)
{
    const struct watched *found = watched_at(code);
    struct prefetch prefetch;
    w->code = code;
    if (prefetch_decode((const UChar *)code, length, &prefetch))
        add_prefetch(w, &prefetch);
    w->instructions++;
    if (found != NULL)
        addStmtToIRSB(w->to, IRStmt_Dirty(unsafeIRDirty_0_N(0, found->name, VG_(fnptr_to_fnentry)(found->call),
                                                             mkIRExprVec_0())));
}

static void add_load(struct writing *w, Int at, IRExpr *address, UInt size, IRExpr *guard)
{
    if (!has_partner(w->from, at, 1, address))
        add_access(w, address, size, CACHE_READ, guard);
}

static void add_store(struct writing *w, Int at, IRExpr *address, UInt size, IRExpr *guard)
{
    add_access(w, address, size, has_partner(w->from, at, -1, address) ? CACHE_MODIFY : CACHE_WRITE, guard);
}

static void add_dirty(struct writing *w, const IRDirty *call)
{
    if (call->mFx == Ifx_None)
        return;
    UInt size = call->mSize < CACHE_LINE ? (UInt)call->mSize : CACHE_LINE;
    add_access(w, call->mAddr, size, call->mFx == Ifx_Read ? CACHE_READ : call->mFx == Ifx_Write ? CACHE_WRITE : CACHE_MODIFY,
               call->guard);
}

static UInt bytes_of(const struct writing *w, IRExpr *value)
{
    return (UInt)sizeofIRType(typeOfIRExpr(w->from->tyenv, value));
}

/* The accesses of one statement, before it is copied. */
static void add_statement(struct writing *w, Int at)
{
    IRStmt *s = w->from->stmts[at];
    IRType wide, loaded;
    switch (s->tag) {
    case Ist_WrTmp:
        if (s->Ist.WrTmp.data->tag == Iex_Load)
            add_load(w, at, loaded_at(s), (UInt)sizeofIRType(s->Ist.WrTmp.data->Iex.Load.ty), NULL);
        break;
    case Ist_LoadG:
        typeOfIRLoadGOp(s->Ist.LoadG.details->cvt, &wide, &loaded);
        add_load(w, at, loaded_at(s), (UInt)sizeofIRType(loaded), s->Ist.LoadG.details->guard);
        break;
    case Ist_Store:
        add_store(w, at, stored_at(s), bytes_of(w, s->Ist.Store.data), NULL);
        break;
    case Ist_StoreG:
        add_store(w, at, stored_at(s), bytes_of(w, s->Ist.StoreG.details->data), s->Ist.StoreG.details->guard);
        break;
    case Ist_Dirty:
        add_dirty(w, s->Ist.Dirty.details);
        break;
    case Ist_LLSC:
        if (s->Ist.LLSC.storedata == NULL)
            add_access(w, s->Ist.LLSC.addr, (UInt)sizeofIRType(typeOfIRTemp(w->from->tyenv, s->Ist.LLSC.result)),
                       CACHE_READ, NULL);
        else
            add_access(w, s->Ist.LLSC.addr, bytes_of(w, s->Ist.LLSC.storedata), CACHE_MODIFY, NULL);
        break;
    case Ist_Exit:
        add_instructions(w);
        break;
    default:
        break;
    }
}

static IRSB *instrument(VgCallbackClosure *closure, IRSB *from, const VexGuestLayout *layout,
                        const VexGuestExtents *extents, const VexArchInfo *host, IRType guest_word, IRType host_word)
{
    (void)layout, (void)extents, (void)host, (void)guest_word, (void)host_word;
    struct writing w = {.to = deepCopyIRSBExceptStmts(from), .from = from, .by_program = is_program(closure->nraddr)};
    for (Int i = 0; i < from->stmts_used; i++) {
        IRStmt *statement = from->stmts[i];
        if (statement == NULL || statement->tag == Ist_NoOp)
            continue;
        if (statement->tag == Ist_Dirty && VG_(strstr)(statement->Ist.Dirty.details->cee->name, "RDTSC") != NULL)
            statement->Ist.Dirty.details->cee->addr = VG_(fnptr_to_fnentry)(&events_ticks);
        if (statement->tag == Ist_IMark)
            w.by_program = is_program(statement->Ist.IMark.addr);
        add_statement(&w, i);
        addStmtToIRSB(w.to, statement);
        if (statement->tag == Ist_IMark)
            begin_instruction(&w, statement->Ist.IMark.addr, statement->Ist.IMark.len);
        if (statement->tag == Ist_CAS)
            add_swap(&w, statement->Ist.CAS.details);
    }
    add_instructions(&w);
    return w.to;
}

/* --- start and end ----------------------------------------------------------------------------------------- */

static Bool option(const HChar *argument)
{
    return VG_STR_CLO(argument, "--out", option_out) || VG_INT_CLO(argument, "--skip", option_skip)
        || VG_INT_CLO(argument, "--count", option_count) || VG_INT_CLO(argument, "--seed", option_seed)
        || VG_BINT_CLO(argument, "--turn", option_turn, 0, 10000);
}

static void usage(void)
{
    VG_(printf)("    --out=FILE    where the report goes [lines.json]\n"
                "    --skip=N      operations before counting begins [0]\n"
                "    --count=N     operations counted, then the program is ended [until lines_end, or all]\n"
                "    --seed=N      of the lengths of turns [1]\n"
                "    --turn=N      blocks of code in a turn on average; 0: until sched_yield or a wait [8]\n");
}

static void debug_usage(void)
{
}

static void initialise(void)
{
    turns_init((UInt)option_turn, (ULong)option_seed);
}

static void at_end(Int status)
{
    (void)status;
    events_end();
    report_write(option_out);
}

static void ended(ThreadId thread)
{
    turns_ended(thread);
}

static void created(ThreadId parent, ThreadId child)
{
    (void)parent;
    turns_created(child);
}

static void client_starts(ThreadId thread, ULong blocks)
{
    static Bool fixed = False;
    (void)blocks;
    if (!fixed)
        calls_fix_random(thread);
    fixed = True;
    turns_wait(thread);
}

static void client_stops(ThreadId thread, ULong blocks)
{
    (void)blocks;
    turns_pause(thread);
}

static void begin(void)
{
    VG_(details_name)("lines");
    VG_(details_version)(NULL);
    VG_(details_description)("which cache lines move between cores");
    VG_(details_copyright_author)("Part of HAKMEM.");
    VG_(details_bug_reports_to)("HAKMEM's issues");
    VG_(basic_tool_funcs)(initialise, instrument, at_end);
    VG_(clo_vex_control).iropt_register_updates_default = VexRegUpdAllregsAtEachInsn; /* for the registers of prefetches */
    VG_(needs_command_line_options)(option, usage, debug_usage);
    VG_(needs_syscall_wrapper)(calls_before, calls_after);
    VG_(track_start_client_code)(client_starts);
    VG_(track_stop_client_code)(client_stops);
    VG_(track_pre_thread_ll_create)(created);
    VG_(track_pre_thread_ll_exit)(ended);
    VG_(track_die_mem_munmap)(calls_unmapped);
    VG_(track_die_mem_brk)(calls_unmapped);
    events_init();
}

VG_DETERMINE_INTERFACE_VERSION(begin)
