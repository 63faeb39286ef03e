/* See fault_os.h. Only the six memory calls count; time, random numbers and the page size never fail. */
#include "support/fault_os.h"

#include <stddef.h>

void (*fault_observer)(uint64_t call, bool done);

static struct fault_plan plan;
static _Atomic uint64_t calls, failures;

static bool planned(uint64_t call)
{
    switch (plan.mode) {
    case FAULT_ONCE: return call == plan.first;
    case FAULT_FROM_THEN_ON: return call >= plan.first;
    case FAULT_EVERY_THIRD: return call >= plan.first && (call - plan.first) % 3 == 0;
    case FAULT_NEVER:
    case FAULT_MODES: break;
    }
    return false;
}

/* Begins a call: its number, or 0 when it is to fail. */
static uint64_t begin(void)
{
    uint64_t call = atomic_fetch_add(&calls, 1) + 1;
    if (planned(call)) {
        atomic_fetch_add(&failures, 1);
        return 0;
    }
    if (fault_observer != NULL)
        fault_observer(call, false);
    return call;
}

static int end(uint64_t call, int code)
{
    if (fault_observer != NULL)
        fault_observer(call, true);
    return code;
}

static int fault_map(uintptr_t address, size_t size)
{
    uint64_t call = begin();
    return call == 0 ? plan.code : end(call, hak__os_linux.map(address, size));
}

static int fault_extend(uintptr_t address, size_t size)
{
    uint64_t call = begin();
    return call == 0 ? plan.code : end(call, hak__os_linux.extend(address, size));
}

static int fault_unmap(uintptr_t address, size_t size)
{
    uint64_t call = begin();
    return call == 0 ? plan.code : end(call, hak__os_linux.unmap(address, size));
}

static int fault_purge(uintptr_t address, size_t size)
{
    uint64_t call = begin();
    return call == 0 ? plan.code : end(call, hak__os_linux.purge(address, size));
}

static int fault_move(uintptr_t from, size_t size, uintptr_t to, size_t new_size)
{
    uint64_t call = begin();
    return call == 0 ? plan.code : end(call, hak__os_linux.move(from, size, to, new_size));
}

static int fault_advise(uintptr_t address, size_t size, enum hak_os_advice what)
{
    uint64_t call = begin();
    return call == 0 ? plan.code : end(call, hak__os_linux.advise(address, size, what));
}

static uintptr_t fault_probe(size_t size)
{
    uint64_t call = begin();
    uintptr_t found = call == 0 ? 0 : hak__os_linux.probe(size);
    if (call != 0)
        end(call, 0);
    return found;
}

void fault_install(struct fault_plan new_plan)
{
    static struct hak_os table;
    table = hak__os_linux;
    table.map = fault_map;
    table.extend = fault_extend;
    table.unmap = fault_unmap;
    table.purge = fault_purge;
    table.move = fault_move;
    table.advise = fault_advise;
    table.probe = fault_probe;
    plan = new_plan;
    atomic_store(&calls, 0);
    atomic_store(&failures, 0);
    hak__os = &table;
}

uint64_t fault_calls(void) { return atomic_load(&calls); }
uint64_t fault_failures(void) { return atomic_load(&failures); }
