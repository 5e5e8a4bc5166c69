#include "device/library.h"

#include <dlfcn.h>

#include "base/error.h"

namespace adjoint {

void* Library::handle() {
  void* handle = handle_.load(std::memory_order_acquire);
  if (handle) return handle;
  handle = dlopen(file_, RTLD_NOW | RTLD_LOCAL);  // a second thread gets the same handle
  if (!handle) {
    fail("a GPU needs ", package_, ", which cannot be opened (", dlerror(),
         "): install it, name its folder in LD_LIBRARY_PATH, or say --device cpu");
  }
  handle_.store(handle, std::memory_order_release);
  return handle;
}

void* Library::find(const char* function) {
  void* found = dlsym(handle(), function);
  if (!found) {
    fail("a GPU needs ", package_, ", and ", file_, " has no function ", function,
         ": install the version that this adjoint was built with, or say --device cpu");
  }
  return found;
}

}  // namespace adjoint
