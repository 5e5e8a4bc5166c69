// A copy of what a save holds, made between two steps and written while the next ones run. Of
// several ranks each copies and writes a share of it: pieces that it alone holds, and its part of
// what others hold, too. The files are those that one rank would have written, byte for byte.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "data/safetensors.h"
#include "run/run.h"
#include "train/store.h"

namespace adjoint {

// Whether a save is written of a copy: what a GPU holds, or ranks in pieces, is in no file's reach.
bool needs_copy(const Run& run);

// Of the elements of an object that a rank holds, those that it saves: ranks that hold the same
// elements share them out.
std::vector<ShardRun> saved_runs(const Object& object, const std::vector<MeshAxis>& mesh,
                                 const Coordinates& at);

class StateCopy {
 public:
  // Takes no memory yet. The ranks of `group` write together, all of them, and no other calls of
  // theirs go through it; none: this process has everything.
  explicit StateCopy(const Run& run, std::optional<Communicator> group = std::nullopt);
  Bytes size() const { return size_; }             // of this rank's share
  bool held() const { return bytes_ != nullptr; }  // its memory is kept after the first copy
  // Copies the run's current state. Throws an Error if it is not finite.
  void take();
  // Writes what save_state would have written when the copy was taken. May run on any thread.
  void save(const SavePaths& paths, int64_t step, const std::string& model) const;

 private:
  // Bytes of a tensor that lie one behind the other in it, and in the copy.
  struct Piece {
    size_t tensor = 0;
    int64_t begin = 0;  // in the tensor
    int64_t from = 0;   // in the run's object
    int64_t copy = 0, size = 0;
  };
  struct File {  // model.safetensors or optimizer.safetensors
    std::vector<Value> values;
    std::vector<SafetensorView> tensors;
    std::vector<Piece> pieces;
  };
  void save_together(const SavePaths& paths, int64_t step, const std::string& model) const;
  uint64_t write_pieces(const File& file, const SafetensorsLayout& layout,
                        const std::filesystem::path& path) const;

  const Run& run_;
  std::optional<Communicator> group_;
  File files_[2];
  Bytes size_;
  std::unique_ptr<std::byte[]> bytes_;
};

}  // namespace adjoint
