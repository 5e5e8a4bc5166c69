// What a run's parameters begin as, and how they are given other values.
#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "ops/quantize.h"
#include "run/run.h"

namespace adjoint {

// A parameter that is held as codes: what it stands for, and how.
struct Encoded {
  Value codes, scales;
  Source source;  // of the matrix
  Type type;
  CodeFormat format;
};
std::vector<Encoded> encoded_parameters(const Scheme& scheme);

// A matrix that is held as indices into numbers of each row or group of a row, [..., group] and
// [..., k]: facets that codebook made.
struct Book {
  Value indices, centres;
  Source source;  // of the matrix
};
std::vector<Book> books_in(const Scheme& scheme);

// Whether a stage's step lacks the parameter because another stage's rank holds it: as numbers, as
// codes, or as indices of centres.
bool another_stage_holds(const Scheme& scheme, const Source& source);

// Begins every parameter and state as the scheme says: random values keyed by seed and source path.
// One that is held as codes gets those of the values that it would begin with. Whoever begins many
// runs keeps the random numbers that were drawn.
class DrawnNumbers;
void initialize(Run& run, uint64_t seed, DrawnNumbers* drawn = nullptr);

// Gives a parameter these values, in logical order; one that is held as codes gets their codes.
// Refuses a source that no parameter has, a wrong number of values, and values that are too large
// for the dtype in which the parameter is held. What another stage holds is left to it.
void write_parameter(Run& run, const Source& source, std::span<const float> values);

// The same of `count` values that are read where they are: `give` fills a piece of them that begins
// at an index, on any thread. On a CPU a piece goes straight to where the run holds the parameter,
// so nothing is held twice.
using GiveValues = std::function<void(int64_t begin, std::span<float> piece)>;
void write_parameter(Run& run, const Source& source, int64_t count, const GiveValues& give);

}  // namespace adjoint
