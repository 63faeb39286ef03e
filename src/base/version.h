/* The version as text; the build gives it. */
#ifndef HAK_BASE_VERSION_H
#define HAK_BASE_VERSION_H

#if !defined(HAK_VERSION_STRING)
#define HAK_VERSION_STRING "0.0.0-dev"
#endif

#endif
