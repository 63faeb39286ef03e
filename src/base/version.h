/* The version as text; the build gives it. */
#pragma once

#if !defined(HAK_VERSION_STRING)
#define HAK_VERSION_STRING "0.0.0-dev"
#endif
