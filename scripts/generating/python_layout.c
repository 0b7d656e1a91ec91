/* Prints, as JSON, where the structures of CPython have what pytrace/runtime/stacks reads. Compiled with the headers of each
   minor version, for free-threaded builds with Py_GIL_DISABLED; the published index is that of a word in _Py_DebugOffsets (3.13 and later). */
#define _GNU_SOURCE 1
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#if PY_VERSION_HEX >= 0x030b0000
#include "internal/pycore_code.h"
#include "internal/pycore_frame.h"
#else
#include <frameobject.h>
#endif
#if PY_VERSION_HEX >= 0x030e0000
#include "internal/pycore_instruments.h"
#include "internal/pycore_interpframe_structs.h"
#endif
#include "internal/pycore_interp.h"
#include <opcode.h>
#include "internal/pycore_runtime.h"

#define OFFSET(name, type, member) printf(",\n  \"" name "\": %zu", offsetof(type, member))
#define VALUE(name, number) printf(",\n  \"" name "\": %zu", (size_t)(number))
#define PUBLISHED(name, member) printf(",\n  \"published " name "\": %zu", offsetof(_Py_DebugOffsets, member) / 8)

#if PY_VERSION_HEX >= 0x030d0000
/* Bits before the kind in the state of a string. */
static int kind_shift(void)
{
    PyASCIIObject string;
    unsigned int state;
    memset(&string, 0, sizeof(string));
    string.state.kind = 1;
    memcpy(&state, &string.state, sizeof(state));
    return __builtin_ctz(state);
}
#endif

int main(void)
{
    printf("{\n  \"minor\": %d", PY_MINOR_VERSION);
#ifdef Py_GIL_DISABLED
    VALUE("free_threaded", 1);
#endif
#if PY_VERSION_HEX < 0x030c0000
    OFFSET("tss_key", _PyRuntimeState, gilstate.autoTSSkey);
#elif PY_VERSION_HEX < 0x030f0000
    OFFSET("tss_key", _PyRuntimeState, autoTSSkey);
#endif
    OFFSET("interpreters_head", _PyRuntimeState, interpreters.head);
    OFFSET("interpreter_next", PyInterpreterState, next);
    OFFSET("thread_next", PyThreadState, next);
    OFFSET("thread_id", PyThreadState, thread_id);
#if PY_VERSION_HEX >= 0x030b0000
    OFFSET("threads_head", PyInterpreterState, threads.head);
    OFFSET("frame_previous", _PyInterpreterFrame, previous);
    OFFSET("frame_owner", _PyInterpreterFrame, owner);
    OFFSET("code_name", PyCodeObject, co_qualname);
    OFFSET("code_table", PyCodeObject, co_linetable);
    OFFSET("code_bytes", PyCodeObject, co_code_adaptive);
    OFFSET("code_traceable", PyCodeObject, _co_firsttraceable);
    VALUE("frame_size", offsetof(_PyInterpreterFrame, localsplus));
#else
    OFFSET("threads_head", PyInterpreterState, tstate_head);
    OFFSET("thread_frame", PyThreadState, frame);
    OFFSET("frame_previous", PyFrameObject, f_back);
    OFFSET("frame_code", PyFrameObject, f_code);
    OFFSET("frame_instruction", PyFrameObject, f_lasti);
    OFFSET("code_name", PyCodeObject, co_name);
    VALUE("frame_size", offsetof(PyFrameObject, f_lasti) + 8);
#if PY_VERSION_HEX >= 0x030a0000
    OFFSET("code_table", PyCodeObject, co_linetable);
#else
    OFFSET("code_table", PyCodeObject, co_lnotab);
#endif
#endif
#if PY_VERSION_HEX >= 0x030d0000
    OFFSET("thread_frame", PyThreadState, current_frame);
    OFFSET("frame_code", _PyInterpreterFrame, f_executable);
    OFFSET("frame_instruction", _PyInterpreterFrame, instr_ptr);
    PUBLISHED("interpreters_head", runtime_state.interpreters_head);
    PUBLISHED("interpreter_next", interpreter_state.next);
    PUBLISHED("threads_head", interpreter_state.threads_head);
    PUBLISHED("thread_next", thread_state.next);
    PUBLISHED("thread_id", thread_state.thread_id);
    PUBLISHED("thread_frame", thread_state.current_frame);
    PUBLISHED("frame_previous", interpreter_frame.previous);
    PUBLISHED("frame_code", interpreter_frame.executable);
    PUBLISHED("frame_instruction", interpreter_frame.instr_ptr);
    PUBLISHED("frame_owner", interpreter_frame.owner);
    PUBLISHED("code_size", code_object.size);
    PUBLISHED("code_name", code_object.qualname);
    PUBLISHED("code_short_name", code_object.name);
    PUBLISHED("code_file", code_object.filename);
    PUBLISHED("code_table", code_object.linetable);
    PUBLISHED("code_line", code_object.firstlineno);
    PUBLISHED("code_bytes", code_object.co_code_adaptive);
    PUBLISHED("ascii_size", unicode_object.asciiobject_size);
    OFFSET("object_type", PyObject, ob_type);
    PUBLISHED("object_type", pyobject.ob_type);
    VALUE("kind_shift", kind_shift());
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030e0000
    OFFSET("frame_tlbc", _PyInterpreterFrame, tlbc_index);
    OFFSET("code_tlbc", PyCodeObject, co_tlbc);
    PUBLISHED("frame_tlbc", interpreter_frame.tlbc_index);
    PUBLISHED("code_tlbc", code_object.co_tlbc);
#endif
#elif PY_VERSION_HEX >= 0x030b0000
    OFFSET("thread_frame", PyThreadState, cframe);
    OFFSET("cframe_frame", _PyCFrame, current_frame);
#if PY_VERSION_HEX < 0x030c0000
    OFFSET("cframe_previous", _PyCFrame, previous);
    OFFSET("frame_entry", _PyInterpreterFrame, is_entry);
#endif
    OFFSET("frame_code", _PyInterpreterFrame, f_code);
    OFFSET("frame_instruction", _PyInterpreterFrame, prev_instr);
#endif
#if PY_VERSION_HEX >= 0x030c0000
    OFFSET("code_version", PyCodeObject, co_version);
#endif
#if PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030f0000
    OFFSET("code_first", PyCodeObject, _co_firsttraceable);
    OFFSET("code_arguments", PyCodeObject, co_argcount);
    OFFSET("code_keywords", PyCodeObject, co_kwonlyargcount);
    OFFSET("code_flags", PyCodeObject, co_flags);
    OFFSET("code_locals", PyCodeObject, co_nlocalsplus);
    OFFSET("code_local_names", PyCodeObject, co_localsplusnames);
    OFFSET("code_constants", PyCodeObject, co_consts);
    OFFSET("tuple_items", PyTupleObject, ob_item);
    VALUE("op_resume", RESUME);
    VALUE("op_return", RETURN_VALUE);
    VALUE("op_extended", EXTENDED_ARG);
#endif
#if PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030c0000
    VALUE("op_generator", RETURN_GENERATOR);
#endif
#if PY_VERSION_HEX >= 0x030d0000 && PY_VERSION_HEX < 0x030f0000
    OFFSET("code_instrumentation", PyCodeObject, _co_instrumentation_version);
    OFFSET("thread_breaker", PyThreadState, eval_breaker);
#endif
#if PY_VERSION_HEX < 0x030f0000
#ifdef RESUME_QUICK
    VALUE("op_resume_quick", RESUME_QUICK);
#endif
#ifdef RESUME_CHECK
    VALUE("op_resume_quick", RESUME_CHECK);
#endif
#ifdef INSTRUMENTED_RESUME
    VALUE("op_resume_instrumented", INSTRUMENTED_RESUME);
    VALUE("op_return_instrumented", INSTRUMENTED_RETURN_VALUE);
#endif
#endif
#if PY_VERSION_HEX >= 0x030c0000 && PY_VERSION_HEX < 0x030f0000
    VALUE("op_line", INSTRUMENTED_LINE);
    OFFSET("code_monitoring", PyCodeObject, _co_monitoring);
    OFFSET("monitoring_lines", _PyCoMonitoringData, lines);
#endif
#if PY_VERSION_HEX >= 0x030e0000 && PY_VERSION_HEX < 0x030f0000
    OFFSET("lines_data", _PyCoLineInstrumentationData, data);
#endif
#ifdef RETURN_CONST
    VALUE("op_constant", RETURN_CONST);
    VALUE("op_constant_instrumented", INSTRUMENTED_RETURN_CONST);
#endif
    VALUE("code_size", sizeof(PyCodeObject));
    OFFSET("code_short_name", PyCodeObject, co_name);
    OFFSET("code_file", PyCodeObject, co_filename);
    OFFSET("code_line", PyCodeObject, co_firstlineno);
    VALUE("ascii_size", sizeof(PyASCIIObject));
    VALUE("compact_size", sizeof(PyCompactUnicodeObject));
    printf("\n}\n");
    return 0;
}
