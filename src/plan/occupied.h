// Which bytes of an arena are taken at which places of a plan's order, and the lowest ones that are
// free for some time. Taking bytes visits as many lists of ranges as the logarithm of the order;
// how many ranges asking passes in them depends on how tightly they are packed, and has no such
// bound. Measured on a pipeline's stage (a test): 87 per storage with 32 parts, 108 with 1024.
#pragma once
#include <cstdint>
#include <vector>

namespace adjoint {

class Occupied {
 public:
  explicit Occupied(int places);  // in the order; all bytes are free at all of them

  // Bytes [begin, end) are taken from place `first` to `last`, both included.
  void take(int64_t begin, int64_t end, int first, int last);
  // The lowest offset at or above `floor` from which `size` bytes are free from `first` to `last`.
  int64_t lowest_free(int64_t floor, int64_t size, int first, int last);

  // How many lists were searched and ranges passed so far: what it costs, without a clock.
  int64_t looks() const { return looks_; }

 private:
  struct Range {
    int64_t begin, end;
  };
  // Disjoint and sorted; those that touch are one, so that what is packed tightly is a few ranges.
  using Ranges = std::vector<Range>;
  // A tree over places: node 1 is all of them, nodes 2n and 2n + 1 are the halves of n, and a leaf
  // is one place. A stretch of time is a few nodes beside each other.
  struct Node {
    Ranges ever;        // taken at any place of the node
    Ranges throughout;  // by what was taken for the node as a whole, at all of its places
  };

  void add(Ranges& ranges, Range range);
  int64_t next_free(const Ranges& ranges, int64_t at, int64_t size);
  // Calls whole(n) for the nodes that make up [first, last], and part(n) for all nodes that hold
  // some of these places and others.
  template <class Whole, class Part>
  void visit(int first, int last, const Whole& whole, const Part& part);

  int height_ = 0;
  std::vector<Node> nodes_;
  std::vector<const Ranges*> asked_;  // by lowest_free
  int64_t looks_ = 0;
};

}  // namespace adjoint
