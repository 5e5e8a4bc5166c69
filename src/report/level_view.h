// A scheme seen from further away: one piece per call of the model's own box, where a repeated box
// is one piece (block^12). At level `block` a repeated piece also lists what one repetition does,
// once for all repetitions that do the same.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/elaborate.h"
#include "scheme/scheme.h"

namespace adjoint {

enum class Level : uint8_t { kChain, kBlock, kOp };
Level level_named(std::string_view name);  // refuses other words
std::vector<std::string> words_of_levels();
std::string_view name(Level level);

// Repetitions of a piece that do the same, and what each of them does.
struct Variant {
  std::vector<int> blocks = {};     // numbers of the repetitions
  std::vector<int> morphisms = {};  // of the first of them
};

struct ChainPiece {
  std::string name;  // "block", "readout", "embed"
  std::string path;  // "block[0]" of a repetition, else "readout"
  Phase phase = Phase::kForward;
  bool again = false;  // a recomputation
  int repeat = 1;
  std::vector<int> morphisms = {};               // of all repetitions
  std::vector<Value> inputs = {}, outputs = {};  // what it reads and gives, parameters left out
  int64_t parameters = 0;                        // that its first repetition is the first to read
  double flops = 0;                              // of all repetitions
  Bytes kept = {0};  // of a step's forward pass: what the backward pass reads of it
  std::vector<Variant> variants = {};  // of a repetition
};
std::vector<ChainPiece> chain_pieces(const Scheme& scheme);

// `names`: what a text calls objects, if it is known.
std::string level_text(const Scheme& scheme, Level level, const Written* written);
nlohmann::json level_json(const Scheme& scheme, Level level, const Written* written);

}  // namespace adjoint
