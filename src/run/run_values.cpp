// What the objects of a run hold, read and written from the host. On a CPU they lie in the host's
// own memory; on a GPU reading waits for the step, and what every step is given goes by mail.
#include <algorithm>
#include <cstring>

#include "device/parallel.h"
#include "run/run.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// Calls f(k, offset) for every element, in logical order.
template <class F>
void for_each_element(const Type& type, const Strides& strides, const F& f) {
  const int64_t row = type.rank() ? type.dim(-1) : 1, step = type.rank() ? strides.back() : 0;
  const int64_t rows = type.num_elements() / std::max<int64_t>(row, 1);
  for (int64_t r = 0; r < rows; ++r) {
    int64_t rest = r, offset = 0;
    for (int a = type.rank() - 1; a-- > 0;) {
      offset += rest % type.dim(a) * strides[a];
      rest /= type.dim(a);
    }
    for (int64_t c = 0; c < row; ++c) f(r * row + c, offset + c * step);
  }
}

}  // namespace

Bytes Run::extent(Value v) const {
  const Type& type = scheme_[v].type;
  int64_t furthest = 0;
  for (int a = 0; a < type.rank(); ++a) furthest += (type.dim(a) - 1) * plan_.places[v].strides[a];
  return (furthest + 1) * size_of(type.dtype);
}

void Run::read(Value v, void* to) const {
  const Bytes size = scheme_[v].type.bytes();
  if (!on_gpu()) {
    const auto* from = static_cast<const std::byte*>(data(v));
    parallel_for(size.count, 1 << 20, [&](int64_t begin, int64_t end, int) {
      std::memcpy(static_cast<std::byte*>(to) + begin, from + begin, end - begin);
    });
    return;
  }
  stream_->copy(to, data(v), size);
  synchronize();
}

void Run::write(Value v, const void* from) {
  const Bytes size = scheme_[v].type.bytes();
  if (!on_gpu()) {
    std::memcpy(data(v), from, size.count);
  } else if (is_state(scheme_[v].role) && scheme_[v].role != Role::kControl) {
    stream_->copy(data(v), from, size);
    synchronize();
  } else {
    send(v, from, size);
  }
}

std::vector<ShardRun> Run::runs_of(Value v) const {
  const Coordinates nowhere;
  return shard_runs(scheme_[v], scheme_.mesh,
                    options_.seat ? options_.seat->coordinates() : nowhere);
}

void Run::write_piece(Value v, const void* whole, double fill) {
  const Type& type = scheme_[v].type;
  CHECK(type.num_elements() == type.num_physical(), "pieces have no padded axes");
  const int64_t size = size_of(type.dtype).count;
  std::vector<std::byte> piece(type.bytes().count);
  if (fill != 0) {
    for (int64_t i = 0; i < type.num_elements(); ++i) {
      store_element(piece.data(), type.dtype, i, fill);
    }
  }
  for (const ShardRun& r : runs_of(v)) {
    std::memcpy(piece.data() + r.local * size,
                static_cast<const std::byte*>(whole) + r.whole * size, r.count * size);
  }
  write(v, piece.data());
}

void Run::read_whole(Value v, void* to) const {
  const Object& object = scheme_[v];
  if (!is_sharded(object)) return read(v, to);
  const Communicator& world = options_.seat->world();
  const int64_t size = size_of(object.type.dtype).count, bytes = object.type.bytes().count;
  std::vector<std::byte> mine(bytes), all(bytes * world.size());
  read(v, mine.data());
  world.all_gather(mine, all).wait();
  for (int rank = 0; rank < world.size(); ++rank) {
    for (const ShardRun& r : shard_runs(object, scheme_.mesh, coordinates_of(rank, scheme_.mesh))) {
      std::memcpy(static_cast<std::byte*>(to) + r.whole * size,
                  all.data() + rank * bytes + r.local * size, r.count * size);
    }
  }
}

void Run::send(Value v, const void* from, Bytes size) {
  const auto landing = plan_.landings.find(v);
  const bool lands = landing != plan_.landings.end();
  mail_->send(v, {.from = from,
                  .size = size,
                  .room = scheme_[v].type.bytes(),
                  .to = data(v),
                  .landing = lands ? at(plan_.storages[landing->second]) : nullptr});
}

void Run::clear(Value v) {
  const Bytes size = scheme_[v].type.bytes();
  if (on_gpu()) {
    stream_->fill(data(v), std::byte{0}, size);
  } else {
    std::memset(data(v), 0, size.count);
  }
}

double Run::number(Value v) const {
  std::byte copy[8];
  const Dtype dtype = scheme_[v].type.dtype;
  if (!on_gpu()) return load_element(data(v), dtype, 0);
  stream_->copy(copy, data(v), size_of(dtype));
  synchronize();
  return load_element(copy, dtype, 0);
}

void Run::set_number(Value v, double number) {
  std::byte copy[8];
  const Dtype dtype = scheme_[v].type.dtype;
  store_element(on_gpu() ? copy : data(v), dtype, 0, number);
  if (on_gpu()) send(v, copy, size_of(dtype));
}

std::vector<double> Run::values(Value v) const {
  const Type& type = scheme_[v].type;
  std::vector<std::byte> copy(on_gpu() ? extent(v).count : 0);
  const void* from = on_gpu() ? copy.data() : data(v);
  if (on_gpu()) stream_->copy(copy.data(), data(v), extent(v)), synchronize();
  std::vector<double> values(type.num_elements());
  const Strides& strides = plan_.places[v].strides;
  if (type.dtype == Dtype::kF32 || type.dtype == Dtype::kF64) {  // mostly, and of many elements
    with_float_type(type.dtype, [&]<class T>() {
      for_each_element(type, strides, [&](int64_t k, int64_t offset) {
        values[k] = static_cast<const T*>(from)[offset];
      });
    });
    return values;
  }
  for_each_element(type, strides, [&](int64_t k, int64_t offset) {
    values[k] = load_element(from, type.dtype, offset);
  });
  return values;
}

void Run::set_values(Value v, const std::vector<double>& values) {
  const Type& type = scheme_[v].type;
  std::vector<std::byte> copy(on_gpu() ? extent(v).count : 0);
  void* to = on_gpu() ? copy.data() : data(v);
  // What lies between its elements is others'.
  if (on_gpu()) stream_->copy(copy.data(), data(v), extent(v)), synchronize();
  const Strides& strides = plan_.places[v].strides;
  if (type.dtype == Dtype::kF32 || type.dtype == Dtype::kF64) {
    with_float_type(type.dtype, [&]<class T>() {
      for_each_element(type, strides, [&](int64_t k, int64_t offset) {
        static_cast<T*>(to)[offset] = static_cast<T>(values[k]);
      });
    });
  } else {
    for_each_element(type, strides, [&](int64_t k, int64_t offset) {
      store_element(to, type.dtype, offset, values[k]);
    });
  }
  if (on_gpu()) stream_->copy(data(v), copy.data(), extent(v)), synchronize();
}

}  // namespace adjoint
