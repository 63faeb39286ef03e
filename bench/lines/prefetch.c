/* PREFETCHW of amd64: [REX] 0F 0D /1 with any memory operand. */
#include "prefetch.h"

#include "pub_tool_guest.h"

#if defined(VGA_amd64)

enum { NO_REGISTER = -1, SIB = 4, RBP = 5 };

static Int register_offset(UInt number)
{
    static const Int offset[] = {
        offsetof(VexGuestArchState, guest_RAX), offsetof(VexGuestArchState, guest_RCX),
        offsetof(VexGuestArchState, guest_RDX), offsetof(VexGuestArchState, guest_RBX),
        offsetof(VexGuestArchState, guest_RSP), offsetof(VexGuestArchState, guest_RBP),
        offsetof(VexGuestArchState, guest_RSI), offsetof(VexGuestArchState, guest_RDI),
        offsetof(VexGuestArchState, guest_R8),  offsetof(VexGuestArchState, guest_R9),
        offsetof(VexGuestArchState, guest_R10), offsetof(VexGuestArchState, guest_R11),
        offsetof(VexGuestArchState, guest_R12), offsetof(VexGuestArchState, guest_R13),
        offsetof(VexGuestArchState, guest_R14), offsetof(VexGuestArchState, guest_R15)};
    return offset[number];
}

static Long distance_of(const UChar *at, UInt mode, Bool without_base)
{
    if (mode == 1)
        return (signed char)at[0];
    if (mode == 0 && !without_base)
        return 0;
    return (Int)((UInt)at[0] | (UInt)at[1] << 8 | (UInt)at[2] << 16 | (UInt)at[3] << 24);
}

Bool prefetch_decode(const UChar *code, UInt length, struct prefetch *found)
{
    const UInt rex = length > 3 && (code[0] & 0xf0) == 0x40 ? code[0] : 0;
    const UChar *at = code + (rex != 0);
    if (length < 3 || at[0] != 0x0f || at[1] != 0x0d || (at[2] >> 3 & 7) != 1 || at[2] >> 6 == 3)
        return False;
    const UInt mode = at[2] >> 6, low = at[2] & 7;
    *found = (struct prefetch){.base = register_offset(low | (rex & 1) << 3), .index = NO_REGISTER};
    if (low == SIB) {
        const UInt index = (at[3] >> 3 & 7) | (rex & 2) << 2;
        found->base = register_offset((at[3] & 7) | (rex & 1) << 3);
        found->index = index == SIB ? NO_REGISTER : register_offset(index);
        found->shift = at[3] >> 6;
    }
    const Bool relative = mode == 0 && low == RBP, without_base = relative || (mode == 0 && low == SIB && (at[3] & 7) == RBP);
    found->distance = distance_of(at + 3 + (low == SIB), mode, without_base);
    if (without_base)
        found->base = NO_REGISTER;
    if (relative)
        found->distance += (Long)(Addr)(code + length);
    return True;
}

#else

Bool prefetch_decode(const UChar *code, UInt length, struct prefetch *found)
{
    return False;
}

#endif
