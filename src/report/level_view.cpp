#include "report/level_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "analysis/structure.h"
#include "analysis/totals.h"
#include "base/error.h"
#include "base/text.h"
#include "ops/op_def.h"
#include "report/scheme_json.h"

namespace adjoint {

namespace {

constexpr std::pair<std::string_view, Level> kLevels[] = {
    {"chain", Level::kChain}, {"block", Level::kBlock}, {"op", Level::kOp}};

// The first component of a path, with and without the number of its repetition.
struct Head {
  std::string path, name;
  int repetition = -1;
};

Head head_of(const std::string& path) {
  Head head{.path = path.substr(0, path.find('.')), .name = {}};
  const size_t bracket = head.path.find('[');
  if (bracket != head.path.npos) {
    head.repetition = std::atoi(head.path.c_str() + bracket + 1);
    head.name = head.path.substr(0, bracket);
  } else {
    head.name = head.path.substr(0, head.path.find('#'));
  }
  return head;
}

std::string replaced(std::string text, const std::string& what, std::string_view by) {
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

// What one repetition does, in words that do not say which repetition it is.
struct Deeds {
  std::string text;
  // What it reads of other repetitions, relative to its own number; "" where that was made before
  // all of them, as what enters the first block was.
  std::vector<std::string> carried = {};
};

// Whether both do the same; what one knows of `carried` and the other does not is taken over.
bool join_if_same(Deeds& known, const Deeds& found) {
  if (known.text != found.text) return false;
  for (size_t i = 0; i < known.carried.size(); ++i) {
    const std::string &a = known.carried[i], &b = found.carried[i];
    if (!a.empty() && !b.empty() && a != b) return false;
  }
  for (size_t i = 0; i < known.carried.size(); ++i) {
    if (known.carried[i].empty()) known.carried[i] = found.carried[i];
  }
  return true;
}

class Pieces {
 public:
  explicit Pieces(const Scheme& scheme)
      : scheme_(scheme),
        made_by_(producers(scheme)),
        read_by_(readers(scheme)),
        from_data_(depends_on_data(scheme)),
        parameters_(parameters_by_object(scheme)) {
    piece_of_.assign(scheme.morphisms.size(), -1);
  }

  std::vector<ChainPiece> find() {
    collect();
    for (size_t p = 0; p < pieces_.size(); ++p) describe(static_cast<int>(p));
    return in_order();
  }

 private:
  // Calls of one component of the model, phase by phase, in the order of their first call.
  void collect() {
    std::map<std::tuple<Phase, bool, std::string>, int> known;
    for (size_t i = 0; i < scheme_.morphisms.size(); ++i) {
      const Morphism& m = scheme_.morphisms[i];
      const Head head = head_of(m.source.path);
      // Of the update all is one piece: it goes over every parameter in turn.
      const bool update = m.phase == Phase::kUpdate;
      const std::string name = update ? "update" : head.repetition >= 0 ? head.name : head.path;
      const auto [found, fresh] =
          known.emplace(std::tuple(m.phase, m.epoch > 0, name), static_cast<int>(pieces_.size()));
      if (fresh) {
        pieces_.push_back({.name = update ? name : head.name,
                           .path = update ? "" : head.path,
                           .phase = m.phase,
                           .again = m.epoch > 0});
        repetitions_.emplace_back();
      }
      piece_of_[i] = found->second;
      pieces_[found->second].morphisms.push_back(static_cast<int>(i));
      if (!update && head.repetition >= 0) {
        repetitions_[found->second][head.repetition].push_back(static_cast<int>(i));
      }
    }
  }

  // Who makes something stands before who reads it, as far as pieces allow it: a table that the
  // second call of a block is the first to read is made before the block.
  std::vector<ChainPiece> in_order() {
    std::vector<ChainPiece> ordered;
    std::vector<bool> placed(pieces_.size(), false);
    const auto is_ready = [&](size_t p) {
      return std::all_of(pieces_[p].inputs.begin(), pieces_[p].inputs.end(), [&](Value in) {
        return made_by_[in] < 0 || placed[piece_of_[made_by_[in]]];
      });
    };
    while (ordered.size() < pieces_.size()) {
      size_t next = pieces_.size();
      for (size_t p = pieces_.size(); p-- > 0;) {
        if (!placed[p]) next = p;
      }
      const size_t first = next;
      while (next < pieces_.size() && (placed[next] || !is_ready(next))) ++next;
      // Pieces that read each other stay in the order of their first calls.
      if (next == pieces_.size()) next = first;
      placed[next] = true;
      ordered.push_back(pieces_[next]);
    }
    return ordered;
  }

  void describe(int p) {
    ChainPiece& piece = pieces_[p];
    const auto& repetitions = repetitions_[p];
    if (!repetitions.empty()) piece.repeat = static_cast<int>(repetitions.size());
    std::vector<Deeds> known;  // per variant
    for (const auto& [number, morphisms] : repetitions) {
      const Deeds deeds = deeds_of(p, number);
      size_t variant = 0;
      while (variant < known.size() && !join_if_same(known[variant], deeds)) ++variant;
      if (variant == known.size()) {
        known.push_back(deeds);
        piece.variants.push_back({.blocks = {}, .morphisms = morphisms});
      }
      piece.variants[variant].blocks.push_back(number);
    }
    std::set<Value> read, given;
    for (const int i : piece.morphisms) {
      const Morphism& m = scheme_.morphisms[i];
      piece.flops += static_cast<double>(count_flops(call_of(scheme_, m)));
      for (const Value in : m.inputs) {
        const Object& o = scheme_[in];
        const bool first = seen_.insert(in).second;
        if (o.role == Role::kParameter) {
          // What is made of a parameter, a cast or the updated one, is none more.
          if (first) piece.parameters += parameters_[in];
        } else if (o.role != Role::kControl && o.role != Role::kState &&
                   (made_by_[in] < 0 || piece_of_[made_by_[in]] != p)) {
          if (read.insert(in).second) piece.inputs.push_back(in);
        }
      }
      for (const Value v : m.outputs) add_output(piece, p, v, given);
    }
  }

  Deeds deeds_of(int p, int number) {
    const std::string &name = pieces_[p].name, path = fmt::format("{}[{}]", name, number);
    std::map<Value, std::string> called;
    Deeds deeds;
    for (const int i : repetitions_[p].at(number)) {
      const Morphism& m = scheme_.morphisms[i];
      deeds.text += m.op + "(";
      for (const Value in : m.inputs) {
        const auto [found, fresh] = called.emplace(in, "");
        if (fresh) found->second = read_from_outside(p, number, in, deeds);
        deeds.text += found->second + ",";
      }
      for (const auto& [key, value] : m.attrs) {
        deeds.text += key + "=" + replaced(to_string(value), path, "*") + ",";
      }
      deeds.text += replaced(to_string(m.source), path, "*") + ")";
      for (const Value v : m.outputs) {
        called[v] = fmt::format("%{}", called.size());
        deeds.text += called[v] + " " + to_string(scheme_[v].type);
      }
      deeds.text += "\n";
    }
    return deeds;
  }

  // How a repetition calls what it did not make itself.
  std::string read_from_outside(int p, int number, Value v, Deeds& deeds) const {
    const Object& o = scheme_[v];
    const std::string source = to_string(o.source);
    const Head head = head_of(o.source.path);
    const bool of_family = head.repetition >= 0 && head.name == pieces_[p].name;
    const bool flows = o.role == Role::kActivation || o.role == Role::kGradient;
    const bool shared = num_repetitions_that_read(v, p) > 1;
    if (shared && !(of_family && flows)) return source;
    if (of_family && head.repetition == number) return "*" + source.substr(head.path.size());
    if (!flows && !of_family) return source;
    deeds.carried.push_back(
        of_family ? fmt::format("{:+}{}", head.repetition - number, source.substr(head.path.size()))
                  : "");
    return fmt::format("carried {} {}", deeds.carried.size(), to_string(o.type));
  }

  int num_repetitions_that_read(Value v, int p) const {
    std::set<int> numbers;
    for (const int r : read_by_[v]) {
      if (piece_of_[r] == p) numbers.insert(head_of(scheme_.morphisms[r].source.path).repetition);
    }
    return static_cast<int>(numbers.size());
  }

  void add_output(ChainPiece& piece, int p, Value v, std::set<Value>& given) {
    const auto& readers = read_by_[v];
    const bool returned =
        std::find(scheme_.outputs.begin(), scheme_.outputs.end(), v) != scheme_.outputs.end();
    // What is made of parameters alone, as joined weights are, is no state of a sample.
    const bool kept = piece.phase == Phase::kForward && scheme_[v].role == Role::kActivation &&
                      from_data_[v] && std::any_of(readers.begin(), readers.end(), [&](int r) {
                        return scheme_.morphisms[r].phase == Phase::kBackward;
                      });
    if (kept) piece.kept += scheme_[v].type.bytes();
    const bool leaves = std::any_of(readers.begin(), readers.end(), [&](int r) {
      return piece_of_[r] != p && scheme_.morphisms[r].phase == piece.phase;
    });
    if ((returned || leaves) && given.insert(v).second) piece.outputs.push_back(v);
  }

  const Scheme& scheme_;
  std::vector<int> made_by_;
  std::vector<std::vector<int>> read_by_;
  std::vector<bool> from_data_;
  std::vector<int64_t> parameters_;  // per object, as they are counted
  std::vector<int> piece_of_;        // per morphism
  std::vector<ChainPiece> pieces_;
  std::vector<std::map<int, std::vector<int>>> repetitions_;  // per piece
  std::set<Value> seen_;
};

std::string called(const Scheme& scheme, Value v, const Written* written) {
  if (written) {
    const auto found = written->names.find(v);
    if (found != written->names.end()) return found->second;
  }
  return to_string(scheme[v].source);
}

std::string wires(const Scheme& scheme, const std::vector<Value>& values, const Written* written) {
  constexpr size_t kMost = 4;
  std::vector<std::string> texts;
  for (size_t i = 0; i < values.size() && i < kMost; ++i) {
    texts.push_back(fmt::format("{} {}", called(scheme, values[i], written),
                                to_string(scheme[values[i]].type)));
  }
  if (values.size() > kMost) texts.push_back(fmt::format("{} more", values.size() - kMost));
  return join(texts, " * ");
}

std::string human_flops(double flops) {
  constexpr std::string_view kUnits[] = {"", "k", "M", "G", "T", "P", "E"};
  size_t unit = 0;
  for (; flops >= 1000 && unit + 1 < std::size(kUnits); ++unit) flops /= 1000;
  return fmt::format("{:.3g} {}FLOPs", flops, kUnits[unit]);
}

// The phase of a piece, as a heading.
std::string pass_of(const ChainPiece& piece) {
  return piece.again ? "computed again" : std::string(name(piece.phase));
}

// What a source is called inside a repetition: qkv of block[3].qkv.
std::string inside(const Source& source, const std::string& path) {
  const std::string whole = to_string(source);
  return whole.starts_with(path + ".") ? whole.substr(path.size() + 1) : whole;
}

std::string path_of(const ChainPiece& piece, const Variant& variant) {
  return fmt::format("{}[{}]", piece.name, variant.blocks[0]);
}

// Of each call of a repeated box, by what it is called inside: the attributes that are not the same
// in all variants that make it.
using Told = std::map<std::string, std::set<std::string>>;
Told told_attributes(const Scheme& scheme, const ChainPiece& piece) {
  std::map<std::string, std::map<std::string, std::set<std::string>>> found;
  std::map<std::string, size_t> calls;
  std::map<std::string, std::map<std::string, size_t>> times;
  for (const Variant& variant : piece.variants) {
    const std::string path = path_of(piece, variant);
    for (const int i : variant.morphisms) {
      const Morphism& m = scheme.morphisms[i];
      ++calls[inside(m.source, path)];
      for (const auto& [key, value] : m.attrs) {
        found[inside(m.source, path)][key].insert(replaced(to_string(value), path, "*"));
        ++times[inside(m.source, path)][key];
      }
    }
  }
  Told told;
  for (const auto& [call, attributes] : found) {
    for (const auto& [key, values] : attributes) {
      const bool differs = values.size() > 1 || times[call][key] < calls[call];
      if (differs) told[call].insert(key);
    }
  }
  return told;
}

// One call of a repetition: attention(qkv, window=4).
std::string call_text(const Scheme& scheme, const Morphism& m, const std::string& path,
                      const Told& told) {
  std::vector<std::string> inputs;
  for (const Value in : m.inputs) inputs.push_back(inside(scheme[in].source, path));
  if (const auto keys = told.find(inside(m.source, path)); keys != told.end()) {
    for (const std::string& key : keys->second) {
      const auto value = m.attrs.find(key);
      if (value != m.attrs.end()) inputs.push_back(key + "=" + to_string(value->second));
    }
  }
  return fmt::format("{}({})", m.op, join(inputs, ", "));
}

nlohmann::json wire_json(const Scheme& scheme, Value v, const Written* written) {
  nlohmann::json out = type_json(scheme[v].type);
  out["source"] = to_string(scheme[v].source);
  if (written) {
    const auto found = written->names.find(v);
    if (found != written->names.end()) out["name"] = found->second;
  }
  return out;
}

}  // namespace

std::vector<std::string> words_of_levels() {
  std::vector<std::string> words;
  for (const auto& [word, level] : kLevels) words.emplace_back(word);
  return words;
}

Level level_named(std::string_view name) {
  for (const auto& [word, level] : kLevels) {
    if (word == name) return level;
  }
  const std::vector<std::string> known = words_of_levels();
  fail("--level: wanted ", join(known, ", "), ", found '", name, "'", did_you_mean(name, known));
}

std::string_view name(Level level) { return kLevels[static_cast<size_t>(level)].first; }

std::vector<ChainPiece> chain_pieces(const Scheme& scheme) { return Pieces(scheme).find(); }

std::string level_text(const Scheme& scheme, Level level, const Written* written) {
  if (level == Level::kOp) return print(scheme);
  std::string out, pass;
  const std::vector<ChainPiece> pieces = chain_pieces(scheme);
  const bool is_step = std::any_of(pieces.begin(), pieces.end(), [](const ChainPiece& piece) {
    return piece.phase != Phase::kForward;
  });
  for (const ChainPiece& piece : pieces) {
    if (is_step && pass_of(piece) != pass) {
      pass = pass_of(piece);
      out += pass + "\n";
    }
    const std::string title = piece.repeat > 1 ? fmt::format("{}^{}", piece.name, piece.repeat)
                                               : (piece.path.empty() ? piece.name : piece.path);
    std::vector<std::string> facts;
    if (piece.parameters > 0) facts.push_back(with_commas(piece.parameters) + " parameters");
    if (piece.flops > 0) facts.push_back(human_flops(piece.flops));
    if (piece.kept.count > 0) facts.push_back("keeps " + human(piece.kept));
    out +=
        fmt::format("  {:<14} {} -> {}\n  {:<14} {}\n", title, wires(scheme, piece.inputs, written),
                    wires(scheme, piece.outputs, written), "", join(facts, ", "));
    if (level != Level::kBlock) continue;
    const Told told = told_attributes(scheme, piece);
    for (const Variant& variant : piece.variants) {
      std::vector<std::string> numbers;
      for (const int b : variant.blocks) numbers.push_back(std::to_string(b));
      const std::string path = path_of(piece, variant);
      if (piece.variants.size() > 1) {
        out += fmt::format("    {} {}:\n", piece.name, join(numbers, ", "));
      }
      for (const int i : variant.morphisms) {
        const Morphism& m = scheme.morphisms[i];
        const std::string own = m.outputs.empty() ? "" : inside(scheme[m.outputs[0]].source, path);
        out += fmt::format("    {:<18} {} -> {}\n", own, call_text(scheme, m, path, told),
                           m.outputs.empty() ? "" : to_string(scheme[m.outputs[0]].type));
      }
    }
  }
  return out;
}

nlohmann::json level_json(const Scheme& scheme, Level level, const Written* written) {
  nlohmann::json out = nlohmann::json::array();
  for (const ChainPiece& piece : chain_pieces(scheme)) {
    nlohmann::json one = {{"name", piece.name},
                          {"path", piece.path},
                          {"phase", name(piece.phase)},
                          {"again", piece.again},
                          {"repeat", piece.repeat},
                          {"params", piece.parameters},
                          {"flops", piece.flops},
                          {"kept_bytes", piece.kept.count},
                          {"inputs", nlohmann::json::array()},
                          {"outputs", nlohmann::json::array()}};
    for (const Value v : piece.inputs) one["inputs"].push_back(wire_json(scheme, v, written));
    for (const Value v : piece.outputs) one["outputs"].push_back(wire_json(scheme, v, written));
    if (level == Level::kBlock) {
      one["variants"] = nlohmann::json::array();
      const Told told = told_attributes(scheme, piece);
      for (const Variant& variant : piece.variants) {
        const std::string path = path_of(piece, variant);
        nlohmann::json calls = nlohmann::json::array();
        for (const int i : variant.morphisms) {
          const Morphism& m = scheme.morphisms[i];
          nlohmann::json call = {{"source", to_string(m.source)},
                                 {"op", m.op},
                                 {"text", call_text(scheme, m, path, told)}};
          if (!m.outputs.empty()) call["output"] = wire_json(scheme, m.outputs[0], written);
          calls.push_back(std::move(call));
        }
        one["variants"].push_back({{"blocks", variant.blocks}, {"calls", std::move(calls)}});
      }
    }
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace adjoint
