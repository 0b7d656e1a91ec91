#ifndef _PYTRACE_STDARG_H
#define _PYTRACE_STDARG_H
typedef __builtin_va_list va_list;
typedef __builtin_va_list __gnuc_va_list;
#endif
