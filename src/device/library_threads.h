// Sets how many threads a library assumes. oneDNN sizes its scratchpads by OpenMP's number of
// threads, which OpenMP keeps per thread: a new thread begins with the default, not with what
// set_num_threads set elsewhere. So code that sizes or prepares a kernel sets the number that the
// call itself has, and the result is the same on every thread.
#pragma once

namespace adjoint {

// While it exists, libraries that are called from this thread assume `count` threads.
class LibraryThreads {
 public:
  explicit LibraryThreads(int count);
  ~LibraryThreads();
  LibraryThreads(const LibraryThreads&) = delete;
  LibraryThreads& operator=(const LibraryThreads&) = delete;

 private:
  int before_ = 0;
};

}  // namespace adjoint
