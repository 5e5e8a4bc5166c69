#include "run/parameters.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>

#include "analysis/structure.h"
#include "base/error.h"
#include "base/philox.h"
#include "device/parallel.h"
#include "kernels/quantize.h"
#include "run/initial_values.h"
#include "scheme/elements.h"

namespace adjoint {

std::vector<Encoded> encoded_parameters(const Scheme& scheme) {
  std::vector<Encoded> all;
  std::set<Value> seen;
  const std::vector<int> made_by = producers(scheme);
  for (const Morphism& m : scheme.morphisms) {
    if (!op_named(m.op).decodes) continue;
    // Codes that live in the host's tier are fetched for each reader; what is stored is the input.
    const Value codes = before_moves(scheme, made_by, m.inputs[0]);
    const Value scales_in = before_moves(scheme, made_by, m.inputs[1]);
    if (!seen.insert(codes).second) continue;
    CHECK(made_by[codes] < 0 && made_by[scales_in] < 0, "codes are a parameter of the step");
    Encoded e{codes, scales_in, scheme[codes].source, whole_type(scheme[m.outputs[0]]), {}};
    // The facet that the realization added stands last: W:codes, W:lora.codes.
    std::string& facet = e.source.facet;
    const size_t dot = facet.rfind('.');
    facet.resize(dot == std::string::npos ? 0 : dot);
    e.format.kind = code_kind(std::get<std::string>(m.attrs.at("format"))).value();
    const Type scales = whole_type(scheme[e.scales]);
    if (scales.rank() + 1 == e.type.rank()) e.format.per = CodeFormat::Per::kChannel;
    if (scales.rank() == e.type.rank()) {
      e.format.per = CodeFormat::Per::kGroup;
      e.format.group = e.type.dim(-1) / scales.dim(-1);
    }
    all.push_back(std::move(e));
  }
  return all;
}

std::vector<Book> books_in(const Scheme& scheme) {
  constexpr std::string_view kIndices = "indices";
  std::vector<Book> all;
  for (const Value in : scheme.inputs) {
    Source source = scheme[in].source;
    if (scheme[in].role != Role::kParameter || !source.facet.ends_with(kIndices)) continue;
    source.facet.resize(source.facet.size() - kIndices.size());
    if (source.facet.ends_with('.')) source.facet.pop_back();
    const auto centres = scheme.find(with_facet(source, "centres"));
    CHECK(centres, "indices point to centres");
    all.push_back({in, *centres, source});
  }
  return all;
}

bool another_stage_holds(const Scheme& scheme, const Source& source) {
  const auto is_it = [](const Object& object, const Source& wanted) {
    return object.role == Role::kParameter &&
           (object.source == wanted || object.source == with_facet(wanted, "codes") ||
            object.source == with_facet(wanted, "indices"));
  };
  for (const Value in : scheme.inputs) {
    if (is_it(scheme[in], source)) return false;
  }
  return std::any_of(scheme.of_all_stages.begin(), scheme.of_all_stages.end(),
                     [&](const Object& object) { return is_it(object, source); });
}

namespace {

int64_t numbers_of(const Run& run, const Book& book) {
  return whole_type(run.scheme()[book.indices]).num_elements();
}

// What a rank holds of whole codes and whole numbers.
void write_whole(Run& run, Value v, const void* bytes) {
  is_sharded(run.scheme()[v]) ? run.write_piece(v, bytes) : run.write(v, bytes);
}
void set_whole_values(Run& run, Value v, const std::vector<float>& numbers) {
  std::vector<double> held(run.scheme()[v].type.num_elements());
  for (const ShardRun& r : run.runs_of(v)) {
    std::copy_n(numbers.begin() + r.whole, r.count, held.begin() + r.local);
  }
  run.set_values(v, held);
}

void write_book(Run& run, const Book& book, const float* matrix) {
  const Type indices = whole_type(run.scheme()[book.indices]);
  const Type centres = whole_type(run.scheme()[book.centres]);
  const int64_t group = indices.dim(-1), k = centres.dim(-1);
  std::vector<uint8_t> found(indices.num_elements());
  std::vector<float> numbers(centres.num_elements());
  parallel_for(indices.num_elements() / group, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      find_centres(matrix + r * group, group, k, &found[r * group], &numbers[r * k]);
    }
  });
  write_whole(run, book.indices, found.data());
  set_whole_values(run, book.centres, numbers);
}

void write_codes(Run& run, const Encoded& e, const float* matrix) {
  std::vector<std::byte> codes(whole_type(run.scheme()[e.codes]).bytes().count);
  std::vector<float> scales(whole_type(run.scheme()[e.scales]).num_physical());
  quantize(matrix, e.type, e.format, codes.data(), scales.data());
  write_whole(run, e.codes, codes.data());
  // A reference has them in float64.
  set_whole_values(run, e.scales, scales);
}

}  // namespace

void initialize(Run& run, uint64_t seed, DrawnNumbers* drawn) {
  const auto values_of = [&](const Source& source, const Init& init, int64_t count) {
    return InitialValues(init, {random_key(seed, to_string(source) + ":init"), 0}, count, drawn);
  };
  std::set<Value> written;
  const auto matrix_of = [&](const Source& source, const Init& init, int64_t count) {
    const InitialValues values = values_of(source, init, count);
    std::vector<float> matrix(count);
    parallel_for(count, 4096, [&](int64_t begin, int64_t end, int) {
      values.give(begin, end,
                  [&](int64_t i, double value) { matrix[i] = static_cast<float>(value); });
    });
    return matrix;
  };
  for (const Encoded& e : encoded_parameters(run.scheme())) {
    written.insert({e.codes, e.scales});
    const auto& init = run.scheme()[e.codes].init;
    if (init) write_codes(run, e, matrix_of(e.source, *init, e.type.num_elements()).data());
  }
  for (const Book& book : books_in(run.scheme())) {
    written.insert({book.indices, book.centres});
    const auto& init = run.scheme()[book.indices].init;
    if (init) write_book(run, book, matrix_of(book.source, *init, numbers_of(run, book)).data());
  }
  for (const Value v : run.scheme().inputs) {
    const Object& object = run.scheme()[v];
    if (!object.init || written.count(v)) continue;
    const Type& type = object.type;
    if (object.init->kind == Init::Kind::kZeros) {
      run.clear(v);
      continue;
    }
    // Keyed by the whole object's elements: a rank's piece has the values that these have there.
    const Type whole = whole_type(object);
    const InitialValues values = values_of(object.source, *object.init, whole.num_elements());
    const int64_t row = type.rank() ? type.dim(-1) : 1;
    const int64_t physical = type.rank() ? type.axes.back().physical() : 1;
    std::vector<std::byte> data(type.bytes().count);
    // Indices count logical elements: padding changes no value. Of inputs only the last axis is
    // ever padded.
    for (const ShardRun& r : run.runs_of(v)) {
      parallel_for(r.count, 4096, [&](int64_t begin, int64_t end, int) {
        values.give(r.whole + begin, r.whole + end, [&](int64_t k, double value) {
          const int64_t i = k - r.whole + r.local;
          const int64_t place = row == physical ? i : i / row * physical + i % row;
          store_element(data.data(), type.dtype, place, value);
        });
      });
    }
    run.write(v, data.data());
  }
}

void write_parameter(Run& run, const Source& source, std::span<const float> values) {
  write_parameter(run, source, static_cast<int64_t>(values.size()),
                  [&](int64_t begin, std::span<float> piece) {
                    std::copy_n(values.begin() + begin, piece.size(), piece.begin());
                  });
}

void write_parameter(Run& run, const Source& source, int64_t count, const GiveValues& give) {
  const auto check_count = [&](const Type& type) {
    if (type.num_elements() == count) return;
    fail("parameter '", to_string(source), "' has ", type.num_elements(), " elements, found ",
         count);
  };
  // Codes are found of a whole matrix.
  const auto matrix = [&] {
    std::vector<float> all(count);
    parallel_for(count, 4096, [&](int64_t begin, int64_t end, int) {
      give(begin, std::span(all).subspan(begin, end - begin));
    });
    return all;
  };
  for (const Book& book : books_in(run.scheme())) {
    if (book.source != source) continue;
    check_count(whole_type(run.scheme()[book.indices]));
    write_book(run, book, matrix().data());
    return;
  }
  for (const Encoded& e : encoded_parameters(run.scheme())) {
    if (e.source != source) continue;
    check_count(e.type);
    write_codes(run, e, matrix().data());
    return;
  }
  for (const Value v : run.scheme().inputs) {
    const Object& object = run.scheme()[v];
    if (object.role != Role::kParameter || object.source != source) continue;
    const Type& type = object.type;
    check_count(whole_type(object));
    const int64_t row = type.rank() ? type.dim(-1) : 1;
    const int64_t physical = type.rank() ? type.axes.back().physical() : 1;
    std::vector<std::byte> staged(run.on_gpu() ? type.bytes().count : 0);
    void* const to = run.on_gpu() ? staged.data() : run.data(v);
    std::atomic<bool> fits = true;
    for (const ShardRun& held : run.runs_of(v)) {
      parallel_for(held.count, 4096, [&](int64_t begin, int64_t end, int) {
        constexpr int64_t kPiece = 1024;  // stays in the first cache
        float piece[kPiece];
        for (int64_t first = begin; first < end; first += kPiece) {
          const int64_t n = std::min(kPiece, end - first);
          give(held.whole + first, std::span(piece, n));
          for (int64_t k = 0; k < n; ++k) {
            const int64_t i = held.local + first + k;
            const int64_t place = row == physical ? i : i / row * physical + i % row;
            store_element(to, type.dtype, place, piece[k]);
            const bool finite = std::isfinite(load_element(to, type.dtype, place));
            if (!finite && std::isfinite(piece[k])) fits = false;
          }
        }
      });
    }
    if (!fits) {
      fail("parameter '", to_string(source), "' has values that are too large for ",
           name(type.dtype), ", in which the stack holds it");
    }
    if (run.on_gpu()) run.write(v, staged.data());
    return;
  }
  if (another_stage_holds(run.scheme(), source)) return;
  fail("there is no parameter '", to_string(source), "'");
}

}  // namespace adjoint
