#include "train/state_copy.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file_view.h"
#include "comm/texts.h"
#include "scheme/shards.h"
#include "train/checksum.h"
#include "train/save.h"
#include "train/saved_tensors.h"

namespace adjoint {

namespace fs = std::filesystem;

bool needs_copy(const Run& run) {
  const std::vector<Object>& objects = run.scheme().objects;
  return run.on_gpu() || !run.scheme().of_all_stages.empty() ||
         std::any_of(run.scheme().inputs.begin(), run.scheme().inputs.end(),
                     [&](Value v) { return is_sharded(objects[v]); });
}

std::vector<ShardRun> saved_runs(const Object& object, const std::vector<MeshAxis>& mesh,
                                 const Coordinates& at) {
  // Along axes of the mesh that do not cut the object, ranks hold the same.
  int64_t holders = 1, mine = 0;
  for (const MeshAxis& axis : mesh) {
    // Of the stages that hold an object one saves it (functors/stage_step.h).
    if (axis.name == kStageAxis) {
      if (object.attributes.stage != at.at(axis.name) + 1) return {};
      continue;
    }
    const bool cuts = std::ranges::any_of(object.attributes.placement, [&](const Placement& p) {
      return p.mesh_axis == axis.name && p.spread == Spread::kSharded && p.whole > 0;
    });
    if (cuts) continue;
    holders *= axis.size;
    mine = mine * axis.size + at.at(axis.name);
  }
  const std::vector<ShardRun> held = shard_runs(object, mesh, at);
  int64_t total = 0;
  for (const ShardRun& r : held) total += r.count;
  const int64_t first = total * mine / holders, last = total * (mine + 1) / holders;
  std::vector<ShardRun> saved;
  int64_t before = 0;  // elements of earlier runs
  for (const ShardRun& r : held) {
    const int64_t begin = std::max(first - before, int64_t{0});
    const int64_t end = std::min(last - before, r.count);
    if (begin < end) saved.push_back({r.whole + begin, r.local + begin, end - begin});
    before += r.count;
  }
  return saved;
}

namespace {
// The bytes of a piece in a copy, rounded up so that the next one is aligned for float32.
int64_t copied_size(int64_t size) { return (size + 3) / 4 * 4; }
}  // namespace

StateCopy::StateCopy(const Run& run, std::optional<Communicator> group)
    : run_(run), group_(std::move(group)) {
  const Scheme& scheme = run.scheme();
  const bool ranks = run.seat() != nullptr;
  for (const Role role : {Role::kParameter, Role::kState}) {
    File& file = files_[role == Role::kState];
    file.tensors = views_of(scheme, role, nullptr);
    std::map<std::string, Value> held;
    for (const Value v : inputs_of(scheme, role)) held[to_string(scheme[v].source)] = v;
    for (size_t i = 0; i < file.tensors.size(); ++i) {
      const auto found = held.find(file.tensors[i].name);
      file.values.push_back(found == held.end() ? -1 : found->second);
      if (found == held.end()) continue;  // another stage has it
      const Object& object = scheme[found->second];
      const int64_t element = size_of(object.type.dtype).count;
      const auto runs = ranks ? saved_runs(object, scheme.mesh, run.seat()->coordinates())
                              : std::vector<ShardRun>{{0, 0, object.type.num_elements()}};
      for (const ShardRun& r : runs) {
        const int64_t size = r.count * element;
        file.pieces.push_back({i, r.whole * element, r.local * element, size_.count, size});
        size_ += Bytes{copied_size(size)};
      }
    }
  }
}

void StateCopy::take() {
  if (!bytes_) bytes_ = std::make_unique_for_overwrite<std::byte[]>(size_.count);
  for (File& file : files_) {
    std::vector<SafetensorView> copied;
    std::vector<std::byte> staged;  // of a GPU: what is copied is a part of what is read
    size_t staged_tensor = file.values.size();
    for (const Piece& piece : file.pieces) {
      const Value v = file.values[piece.tensor];
      std::byte* const to = bytes_.get() + piece.copy;
      if (piece.size == run_.scheme()[v].type.bytes().count) {
        run_.read(v, to);
      } else if (!run_.on_gpu()) {
        std::memcpy(to, static_cast<const std::byte*>(run_.data(v)) + piece.from, piece.size);
      } else {
        if (piece.tensor != staged_tensor) {
          staged.resize(run_.scheme()[v].type.bytes().count);
          run_.read(v, staged.data());
          staged_tensor = piece.tensor;
        }
        std::memcpy(to, staged.data() + piece.from, piece.size);
      }
      SafetensorView& view = copied.emplace_back(file.tensors[piece.tensor]);
      view.data = to;
      view.size = {piece.size};
      if (!group_) file.tensors[piece.tensor].data = to;
    }
    check_finite(copied);
  }
}

void StateCopy::save(const SavePaths& paths, int64_t step, const std::string& model) const {
  if (group_) return save_together(paths, step, model);
  write_state(paths, files_[0].tensors, files_[1].tensors, step, model);
}

// Writes what this rank has of a file into it; gives its words' share of the checksum.
uint64_t StateCopy::write_pieces(const File& file, const SafetensorsLayout& layout,
                                 const fs::path& path) const {
  const int to = ::open(checked_output(path).c_str(), O_WRONLY | O_CLOEXEC);
  if (to < 0) fail_to_write(path, errno);
  uint64_t sum = 0;
  int error = 0;
  for (const Piece& piece : file.pieces) {
    const std::byte* from = bytes_.get() + piece.copy;
    sum += sum_of_words(file.tensors[piece.tensor].name, piece.begin, from, {piece.size});
    int64_t at = layout.offsets[piece.tensor] + piece.begin;
    for (int64_t left = piece.size; left > 0 && error == 0;) {
      const ssize_t written = ::pwrite(to, from, left, at);
      if (written < 0 && errno != EINTR) error = errno;
      if (written <= 0) continue;
      from += written, at += written, left -= written;
    }
  }
  if (error == 0 && ::fsync(to) != 0) error = errno;
  if (::close(to) != 0 && error == 0) error = errno;
  if (error != 0) fail_to_write(path, error);
  return sum;
}

namespace {

// What went wrong on this rank, as ranks tell it: 'i' for input that was wrong, 'm' for a machine
// that failed; else nothing.
template <class F>
std::string trouble_of(const F& may_fail) {
  try {
    may_fail();
  } catch (const Error& e) {
    return std::string("i") + e.what();
  } catch (const std::exception& e) {
    return std::string("m") + e.what();
  }
  return "";
}

// All ranks throw the same.
void throw_trouble(const std::vector<std::string>& of_ranks) {
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const std::string& trouble = of_ranks[rank];
    if (trouble.empty()) continue;
    const std::string sentence = trouble.substr(1) + " (rank " + std::to_string(rank) + ")";
    if (trouble[0] == 'i') throw Error(sentence);
    throw MachineError(sentence);
  }
}

}  // namespace

void StateCopy::save_together(const SavePaths& paths, int64_t step,
                              const std::string& model) const {
  const Communicator& group = *group_;
  const bool first = group.rank() == 0;
  // Everyone computes where everything lies. A checksum has one length, whatever it is.
  SafetensorsLayout layouts[2];
  for (int i = 0; i < 2; ++i) {
    layouts[i] =
        safetensors_layout(files_[i].tensors, save_metadata(step, model, checksum_text(0)));
  }
  // The first rank makes the files, and all write into them.
  std::unique_ptr<AtomicFile> made[2];
  std::string names[2];
  std::string trouble;
  if (first) {
    trouble = trouble_of([&] {
      made[0] = std::make_unique<AtomicFile>(paths.model());
      made[1] = std::make_unique<AtomicFile>(paths.optimizer());
    });
    for (int i = 0; i < 2 && trouble.empty(); ++i) {
      names[i] = made[i]->temporary().filename().string();
    }
  }
  throw_trouble({broadcast_text(group, 0, trouble)});
  uint64_t sums[2] = {};
  for (std::string& name : names) name = broadcast_text(group, 0, name);
  trouble = trouble_of([&] {
    for (int i = 0; i < 2; ++i) {
      sums[i] = write_pieces(files_[i], layouts[i], paths.folder / names[i]);
    }
  });
  throw_trouble(gather_texts(group, trouble));
  std::vector<uint64_t> all(2 * group.size());
  group.all_gather(std::as_bytes(std::span(sums)), bytes_of(all)).wait();
  // All bytes of all ranks are on disk. The header comes last, and then the save stands.
  if (first) {
    trouble = trouble_of([&] {
      std::vector<std::string> checksums;
      for (int i = 0; i < 2; ++i) {
        uint64_t sum = 0;
        for (int rank = 0; rank < group.size(); ++rank) sum += all[2 * rank + i];
        checksums.push_back(checksum_text(sum));
        const auto layout =
            safetensors_layout(files_[i].tensors, save_metadata(step, model, checksums[i]));
        CHECK(layout.head.size() == layouts[i].head.size(), "a header of the size it was to have");
        made[i]->write(layout.head);
      }
      commit_save(paths, {made[0].get(), made[1].get()}, step, checksums);
    });
  }
  throw_trouble({broadcast_text(group, 0, trouble)});
}

}  // namespace adjoint
