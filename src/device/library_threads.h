// How many threads a library counts on. oneDNN sizes its scratchpads by what OpenMP says on the
// calling thread, and OpenMP keeps that number for each thread apart: a new std::thread begins with
// the default, whatever set_num_threads said elsewhere. So whoever sizes or prepares a kernel says
// the number that the call itself carries, and no thread can size anything by another one.
#pragma once

namespace adjoint {

// While it lives, libraries on this thread count on `count` threads.
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
