// The inputs of a model as data give them: each is the field of its name.
#pragma once
#include "data/batches.h"
#include "data/corpus.h"
#include "run/run.h"
#include "scheme/shards.h"

namespace adjoint {

// What the model's inputs ask for, in their order: i32 or f32[batch, seq, ...]. `file` is the
// model's, for complaints.
std::vector<FieldWish> wished_fields(const Scheme& forward, const std::string& file);

// Refuses ids that no table or row of logits has, whole numbers that do not fit i32 or, where a
// body reads them, float32, and numbers that are not finite, but for the -inf of a mask. Reads such
// fields of a file once; takes no memory.
void check_entries(const Corpus& corpus, const std::vector<FieldWish>& wishes,
                   const Scheme& forward);

// What a rank draws of batches: of every field what it holds of the input of its name, in the whole
// scheme of a mesh.
Batches drawn_by(const Batches& batches, const Scheme& whole, const Coordinates& at);

// Writes a batch's fields to the run's inputs of their names.
void feed(Run& run, const Batches& batches, const Batch& batch);

// "field 'x' holds inf", of a batch that has such; else nothing.
std::string field_not_finite(const Batches& batches, const Batch& batch);

// Where a scheme's input of this path is; -1 when it has none.
Value input_named(const Scheme& scheme, std::string_view path);

}  // namespace adjoint
