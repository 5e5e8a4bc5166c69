// The category: objects are typed tensors, morphisms are ops, and one Scheme is one whole training
// step (or a model, or any piece of either). A Scheme is a value: functors take one and return one.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "scheme/type.h"

namespace adjoint {

// Where an object or morphism came from: a path with repetition indices that no functor changes
// (`block[3].linear#2.weight`), and what of that path it is: "" the thing itself, "grad" its
// gradient, "grad.2" a part of it, "adamw.m" a state of the optimizer's.
struct Source {
  std::string path;
  std::string facet = {};
  bool operator==(const Source&) const = default;
};
std::string to_string(const Source& source);  // block[3].qkv.weight:grad
// What a functor makes of it: (W:grad, "bf16") -> W:grad.bf16.
Source with_facet(const Source& source, std::string_view more);

// What an object is in the step.
enum class Role : uint8_t {
  kInput,       // a batch's tokens and targets
  kParameter,   // learned, or frozen
  kState,       // the optimizer's
  kControl,     // varies from step to step and is no data: step, rate, random counter
  kActivation,  // computed on the way forward
  kGradient,    // computed on the way back
  kMetric,      // small results of the step: loss, count, norm
};
std::string_view name(Role role);
std::optional<Role> role_named(std::string_view name);

// How a parameter or state begins. Random values are keyed by its source path.
struct Init {
  enum class Kind : uint8_t { kZeros, kOnes, kNormal, kUniform, kConstant } kind = Kind::kZeros;
  double scale = 0;  // normal: standard deviation; uniform: half width; constant: the value
  bool operator==(const Init&) const = default;
};
std::string to_string(const Init& init);  // normal(0.02)

// What most optimizations set and one realization each acts on (ARCHITECTURE.md, section 5). Each
// default means "nothing to realize".
enum class Residence : uint8_t {
  kUnsaid,      // kept, unless a functor that is on by default knows better
  kKept,        // where it is a state of the chain, an epoch of recomputation begins after it
  kRecomputed,  // computed again by every epoch that reads it
  kApart,       // recomputed, and an epoch begins after it all the same
};
enum class Tier : uint8_t { kDevice, kHost };
constexpr int kNumTiers = 2;
// Ranks are the points of a mesh: named axes, the last one fastest. A rank is its coordinates.
struct MeshAxis {
  std::string name;  // "data", "tensor", ...
  int size = 1;
  bool operator==(const MeshAxis&) const = default;
};
// How an object lies along one axis of the mesh: the same on every rank, each rank with its piece
// of one of the object's axes, or each rank with a term of a sum that nobody has added up yet.
enum class Spread : uint8_t { kReplicated, kSharded, kPartial };
struct Placement {
  std::string mesh_axis;
  Spread spread = Spread::kReplicated;
  int axis = 0;  // which axis of the object is sharded
  // Of a realized shard: the size of that axis in the whole object. The axis of the object itself
  // is then as large as the largest piece. 0: nothing is realized yet.
  int64_t whole = 0;
  // Where the axis holds several things side by side, as q, k and v: their sizes in the whole. A
  // rank has its piece of each. None: the axis is one thing.
  std::vector<int64_t> segments = {};
  // The piece is only kept so: whoever reads the object reads all of it. Otherwise work follows it.
  bool home = false;
  bool operator==(const Placement&) const = default;
};
// How large the largest of n pieces of an axis is. The first pieces are full.
constexpr int64_t shard_size(int64_t whole, int64_t ranks) { return (whole + ranks - 1) / ranks; }
int64_t shard_size(int64_t whole, const std::vector<int64_t>& segments, int64_t ranks);
// How a parameter is trained, where that differs from what the run says of all parameters. The
// optimizer reads it, and leaves it on the parameter as a record.
struct Training {
  std::optional<double> rate = {};   // a factor on the run's learning rate
  std::optional<double> decay = {};  // its own weight decay
  std::string optimizer = {};        // "": the run's
  std::string clipped_as = {};       // clipped by the norm of those with this name; "": the rest's
  bool operator==(const Training&) const = default;
};
struct Attributes {
  std::string precision = {};  // "": as typed; else a dtype or a code, "bf16", "nf4/64"
  Residence residence = Residence::kUnsaid;
  Tier tier = Tier::kDevice;
  std::vector<Placement> placement = {};
  // The chunk of a pipeline in which it is made and held, from 1; 0: wherever it is needed.
  int stage = 0;
  // Of a parameter's gradient: where a batch comes in parts, the terms of its several uses are
  // summed over the parts one by one, and added up after the last part.
  bool use_by_use = false;
  int parts = 1;  // of the batch, in which a step's data comes
  Training training = {};
  bool operator==(const Attributes&) const = default;
};

// An object is named by its position in Scheme::objects.
using Value = int32_t;

struct Object {
  Type type;
  Source source;
  Role role = Role::kActivation;
  bool frozen = false;
  std::optional<Init> init = {};  // parameters and states
  Attributes attributes = {};
  bool operator==(const Object&) const = default;
};

// A constant of one call of an op: eps, a rate, an axis, an index map.
using Attr = std::variant<int64_t, double, std::string, std::vector<int64_t>>;
using Attrs = std::map<std::string, Attr, std::less<>>;
std::string to_string(const Attr& attr);

enum class Phase : uint8_t { kForward, kBackward, kUpdate };
std::string_view name(Phase phase);

// A step in time: a prologue, a body that is repeated once per part of the batch, an epilogue.
// Within each the order is free; a step of one part is all body.
enum class Section : uint8_t { kPrologue, kBody, kEpilogue };
std::string_view name(Section section);

struct Morphism {
  std::string op;
  std::vector<Value> inputs = {};
  std::vector<Value> outputs = {};
  Attrs attrs = {};
  Source source = {};
  Phase phase = Phase::kForward;
  int epoch = 0;  // of recomputation; part of its identity, so no clone merges with its original
  Section section = Section::kBody;
  int slot = 0;  // of a step in the order of a schedule: slots of a section run one after another
  // Objects that exist before it runs, beside its operands: what holds a recomputation or a fetch
  // back until it is wanted. It does not read them, so they may be gone by then.
  std::vector<Value> after = {};
  bool operator==(const Morphism&) const = default;
};

// State that goes in and comes out of a step shares one buffer, as does an accumulator that goes in
// and out of an iteration.
struct Carry {
  Value in = 0, out = 0;
  bool operator==(const Carry&) const = default;
};

struct Scheme {
  std::string name = {};
  std::vector<Object> objects = {};
  std::vector<Morphism> morphisms = {};  // in topological order
  std::vector<Value> inputs = {};        // parameters, state, control and data, in order
  std::vector<Value> outputs = {};
  std::vector<Carry> carries = {};
  std::vector<MeshAxis> mesh = {};  // none: one rank
  // Where the mesh has an axis `stage`: the schedule (src/schedules), by name or as text, and how
  // many chunks of the model each of its ranks holds.
  std::string schedule = {};
  int chunks = 1;
  // Of one stage's step, which holds some of them: the parameters and states of all stages, in
  // order. None: `inputs` has them all.
  std::vector<Object> of_all_stages = {};
  int parts = 1;  // how often the body runs
  // What crosses iterations of the body, and nothing else does: `in` is made before the body (or is
  // an input) and read by its first iteration, `out` by the next one and by the epilogue.
  std::vector<Carry> loop = {};

  const Object& operator[](Value value) const { return objects[value]; }
  Object& operator[](Value value) { return objects[value]; }
  Value add(Object object);
  Value add_input(Object object);
  std::optional<Value> find(const Source& source) const;
  bool operator==(const Scheme&) const = default;
};

// How many ranks an axis of the mesh has; 1 where the mesh has no such axis.
int mesh_size(const std::vector<MeshAxis>& mesh, std::string_view axis);
int num_ranks(const std::vector<MeshAxis>& mesh);
// How an object lies along an axis of the mesh; null: replicated, as nobody said otherwise.
const Placement* placement_over(const Object& object, std::string_view mesh_axis);

// For every object the morphism that makes it, or -1.
std::vector<int> producers(const Scheme& scheme);
// For every object the morphisms that read it, in order.
std::vector<std::vector<int>> readers(const Scheme& scheme);

// Per object: is it returned or carried, so that it must be there when its last reader is done?
std::vector<bool> returned_or_carried(const Scheme& scheme);

// g after f: f's outputs become g's inputs, in order. The rest of g's inputs (`g.inputs` past
// f's outputs) stay inputs; a parameter that both have under one source is one parameter.
Scheme compose(const Scheme& f, const Scheme& g);
// f beside g: the inputs and outputs of both.
Scheme product(const Scheme& f, const Scheme& g);

// The same objects, inputs and outputs, and nothing that makes them yet.
Scheme without_morphisms(const Scheme& scheme);

// The same scheme without objects that nothing makes or reads; nobody waits for those.
Scheme compact(Scheme scheme);

// The same scheme without morphisms whose results nobody reads, returns or carries.
Scheme without_dead(Scheme scheme);

// Ours to keep after every transformation: every object is made once, before it is read, and
// every reference is inside the scheme. Throws nothing: a violation is a bug of ours.
void verify_structure(const Scheme& scheme);

// The flat notation: one line per input and per morphism. print(parse(text)) == text.
std::string print(const Scheme& scheme);
Scheme parse_scheme(std::string_view text, std::string_view file = "scheme");

}  // namespace adjoint
