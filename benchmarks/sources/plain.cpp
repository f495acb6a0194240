// Binds value() with Python's C API.
#include <Python.h>

long value();

static PyObject* call(PyObject*, PyObject*) { return PyLong_FromLong(value()); }

static PyMethodDef methods[] = {{"value", call, METH_NOARGS, nullptr}, {}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "value", nullptr, -1, methods};

#define INIT_FUNCTION(name) INIT_FUNCTION_OF(name)  // expands the name first
#define INIT_FUNCTION_OF(name) PyInit_##name
PyMODINIT_FUNC INIT_FUNCTION(TORCH_EXTENSION_NAME)() { return PyModule_Create(&definition); }
