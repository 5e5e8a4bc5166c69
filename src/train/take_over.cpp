#include "train/take_over.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "run/parameters.h"
#include "scheme/elements.h"
#include "train/model_folder.h"
#include "train/saved_parameters.h"

namespace adjoint {

namespace {

// The parameters that stand for others: codes, scales, indices and centres.
std::set<Value> stand_ins(const Scheme& scheme) {
  std::set<Value> values;
  for (const Encoded& e : encoded_parameters(scheme)) values.insert({e.codes, e.scales});
  for (const Book& b : books_in(scheme)) values.insert({b.indices, b.centres});
  return values;
}

// Names by what is said of them behind the colon, "adamw.m of 26 tensors", and without the numbers
// of blocks, "block[].qkv.lora_a.weight of 12 tensors".
class Names {
 public:
  void add(const std::string& name) {
    const size_t colon = name.find(':');
    std::string kind = colon == std::string::npos ? name : name.substr(colon + 1);
    for (size_t open = kind.find('['); open != std::string::npos; open = kind.find('[', open + 1)) {
      const size_t close = std::min(kind.find(']', open), kind.size());
      kind.erase(open + 1, close - open - 1);
    }
    ++count_[kind];
  }
  bool empty() const { return count_.empty(); }
  std::string words() const {
    std::vector<std::string> words;
    for (const auto& [what, count] : count_) {
      words.push_back(what + (count > 1 ? " of " + std::to_string(count) + " tensors" : ""));
    }
    return join(words, ", ");
  }

 private:
  std::map<std::string, int64_t> count_;
};

bool has_shape(const SafetensorView& view, const Type& type) {
  if (static_cast<int>(view.shape.size()) != type.rank()) return false;
  for (int axis = 0; axis < type.rank(); ++axis) {
    if (view.shape[axis] != type.dim(axis)) return false;
  }
  return true;
}

// Writes what a tensor of the save holds, if the object can hold it.
bool take_tensor(Run& run, Value v, const SafetensorView* have) {
  const Type& type = run.scheme()[v].type;
  if (!have || !has_shape(*have, type)) return false;
  const auto floats = float_dtype(*have);
  if (floats ? *floats == type.dtype : have->size == type.bytes() && !is_float(type.dtype)) {
    run.write(v, have->data);
    return true;
  }
  if (!floats || !is_float(type.dtype)) return false;
  std::vector<float> numbers(type.num_elements());
  read_floats(*have, 0, numbers);
  std::vector<std::byte> data(type.bytes().count);
  for (size_t i = 0; i < numbers.size(); ++i) {
    store_element(data.data(), type.dtype, static_cast<int64_t>(i), numbers[i]);
  }
  run.write(v, data.data());
  return true;
}

// "adamw" of the state adamw.m.
std::string owner_of(const Source& state) { return state.facet.substr(0, state.facet.find('.')); }

// A count of steps means nothing without the state that was made in them.
bool counts_steps(const Source& state) {
  return state.path == "optimizer" && state.facet.ends_with(".steps");
}

void take_states(Run& run, const SafetensorsFile& saved, Names& dropped, Names& fresh) {
  const Scheme& scheme = run.scheme();
  std::set<std::string> taken;
  std::map<std::string, bool> owners;  // of parameters' states: whether any was kept
  std::vector<Value> counters;
  for (const Value v : scheme.inputs) {
    if (scheme[v].role != Role::kState) continue;
    const Source& source = scheme[v].source;
    if (counts_steps(source)) {
      counters.push_back(v);
      continue;
    }
    const std::string name = to_string(source);
    const bool kept = take_tensor(run, v, saved.find(name));
    if (kept) taken.insert(name);
    if (!kept) fresh.add(name);
    bool& any = owners[owner_of(source)];
    any = any || kept;
  }
  for (const Value v : counters) {
    const auto owner = owners.find(owner_of(scheme[v].source));
    if (owner != owners.end() && !owner->second) continue;
    const std::string name = to_string(scheme[v].source);
    if (take_tensor(run, v, saved.find(name))) taken.insert(name);
  }
  for (const SafetensorView& have : saved.tensors()) {
    if (!taken.count(have.name) && !have.name.starts_with("optimizer:")) dropped.add(have.name);
  }
}

}  // namespace

TakenOver take_over(const SavePaths& paths, Run& run, const Scheme& held, const Scheme& plain,
                    const std::string& model) {
  const SavedModel saved(paths);
  saved.check_fits(held);
  saved.check_model(model);
  take_parameters(saved, held, plain, run);
  const OpenSave save = open_to_resume(paths);
  Names dropped, fresh;
  // What stacks added to the model, or took from it.
  const auto added = [&](const Scheme& scheme) {
    std::map<std::string, Value> values;
    const std::set<Value> others = stand_ins(scheme);
    for (const Value v : scheme.inputs) {
      if (scheme[v].role != Role::kParameter || others.count(v) || plain.find(scheme[v].source)) {
        continue;
      }
      values[to_string(scheme[v].source)] = v;
    }
    return values;
  };
  const auto ours = added(run.scheme()), theirs = added(held);
  for (const auto& [name, v] : ours) {
    const bool kept = theirs.count(name) && take_tensor(run, v, saved.file().find(name));
    if (!kept) fresh.add(name);
  }
  for (const auto& [name, v] : theirs) {
    if (!ours.count(name)) dropped.add(name);
  }
  take_states(run, *save.optimizer, dropped, fresh);
  TakenOver result{.step = save.step};
  if (!dropped.empty()) {
    result.notes.push_back("of the save was dropped, because this run has no such thing: " +
                           dropped.words());
  }
  if (!fresh.empty()) {
    result.notes.push_back("begin anew, because the save has no such thing: " + fresh.words());
  }
  return result;
}

}  // namespace adjoint
