// A shared library that is opened when one of its functions is first called: the program starts
// without it, and runs where it is not installed. A header lists the functions that are used, one
// line each:
//
//   LIBRARY_FUNCTION(nvrtc_library, nvrtcVersion);   // inside namespace adjoint, after #include
//   <nvrtc.h>
//
// There the name means this object and no longer the library's function, so calls read as if the
// library were linked.
#pragma once
#include <atomic>

namespace adjoint {

class Library {
 public:
  // The file's name as the loader looks for it, and, for the one sentence that refuses, what to
  // install.
  constexpr Library(const char* file, const char* package) : file_(file), package_(package) {}

  // Each throws an Error that names the library where it, or the function, is not there.
  void open() { handle(); }
  void* find(const char* function);

 private:
  void* handle();

  const char* file_;
  const char* package_;
  std::atomic<void*> handle_ = nullptr;
};

template <class Signature>
class LibraryFunction;

template <class Result, class... Arguments, bool quiet>
class LibraryFunction<Result(Arguments...) noexcept(quiet)> {
 public:
  constexpr LibraryFunction(Library& library, const char* name) : library_(&library), name_(name) {}

  Result operator()(Arguments... arguments) {
    // Threads that come here at the same time find the same address.
    void* address = address_.load(std::memory_order_acquire);
    if (!address) address_.store(address = library_->find(name_), std::memory_order_release);
    return reinterpret_cast<Result (*)(Arguments...)>(address)(arguments...);
  }

 private:
  Library* library_;
  const char* name_;
  std::atomic<void*> address_ = nullptr;
};

}  // namespace adjoint

#define LIBRARY_FUNCTION(library, name) \
  inline constinit LibraryFunction<decltype(::name)> name(library, #name)
