/* Repairs a region whose lock's holder has died, and checks one. The lock is held. */
#pragma once

#include "region/units.h"

/* Rebuilds what follows from the chain and the bits. False: the chain is broken. */
hak_cold bool hak__region_repair(struct hak_region *region);
hak_cold bool hak__region_is_valid(const struct hak_region *region);
