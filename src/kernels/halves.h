// Calls that speak to other ranks have two halves: what begins, and what waits for it.
#pragma once
#include <utility>

#include "kernels/kernel.h"

namespace adjoint {

// Both halves of a call, or one launch of both.
inline Launch halves(const Pointers& at, Launch begin, Launch end) {
  if (!at.completion) {
    return [begin = std::move(begin), end = std::move(end)] {
      begin();
      end();
    };
  }
  *at.completion = std::move(end);
  return begin;
}

}  // namespace adjoint
