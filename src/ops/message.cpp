#include "ops/message.h"

#include "base/error.h"
#include "ops/builder.h"
#include "ops/samples.h"
#include "ops/shape_attr.h"
#include "scheme/shards.h"

namespace adjoint {

namespace {

void check_message(const OpCall& call, std::string_view other) {
  if (call.text("mesh").empty()) fail(call.op, ": wants an axis of the mesh, 'mesh'");
  const int64_t ranks = call.integer("ranks", 0), rank = call.integer(other, -1);
  if (rank < 0 || rank >= ranks) {
    fail(call.op, ": wants '", other, "', a rank below ", ranks, ", found ", rank);
  }
}

IndexMap no_letters(const std::vector<Type>& inputs, const std::vector<Type>& outputs) {
  IndexMap map;
  for (const Type& type : inputs) map.inputs.emplace_back(type.rank(), '.');
  for (const Type& type : outputs) map.outputs.emplace_back(type.rank(), '.');
  return map;
}

std::vector<Type> infer_send(const OpCall& call) {
  check_message(call, "to");
  if (call.inputs.empty()) fail("send: wants an operand, found none");
  for (const Type& operand : call.inputs) {
    if (!same_shape(operand, call.inputs[0]) || operand.dtype != call.inputs[0].dtype) {
      fail("send: operands that travel together have one type, found ", to_string(call.inputs[0]),
           " and ", to_string(operand));
    }
  }
  return {of({})};
}

std::vector<Type> infer_receive(const OpCall& call) {
  check_message(call, "from");
  if (!call.inputs.empty()) fail("receive: takes no operand, found ", call.inputs.size());
  const int64_t count = call.integer("count", 1);
  if (count < 1) fail("receive: wants at least one object, found ", count);
  return std::vector<Type>(count, Type{dtype_attr(call), shape_attr(call)});
}

Attrs attrs(std::string_view other) {
  return {
      {"mesh", std::string(kStageAxis)}, {"ranks", int64_t{1}}, {std::string(other), int64_t{0}}};
}
Attrs receive_attrs(std::vector<int64_t> shape, int64_t count) {
  Attrs all = attrs("from");
  all["shape"] = std::move(shape);
  all["count"] = count;
  return all;
}

}  // namespace

int64_t other_rank(const OpCall& call) {
  return call.integer(op_named(call.op).name == "send" ? "to" : "from");
}

extern const OpDef op_send = {
    .name = "send",
    .summary = "a message to one rank along an axis of the mesh",
    .infer = infer_send,
    .index_map = [](const OpCall& call) { return no_letters(call.inputs, {of({})}); },
    .flops = [](const OpCall&) { return int64_t{0}; },
    .differentiable = false,
    .wants_dense = true,
    .meaning =
        [](Builder& b, std::span<const Value>, const Attrs&) {
          return b.emit_all("fill", {}, {{"shape", std::vector<int64_t>{}}, {"value", 0.0}});
        },
    .to_one_rank = true,
    .samples =
        [] {
          return std::vector<Sample>{{.inputs = {of({7})}, .attrs = attrs("to")},
                                     {.inputs = {of({}), of({}), of({})}, .attrs = attrs("to")}};
        },
    .refused =
        [] {
          return std::vector<Sample>{{.inputs = {}, .attrs = attrs("to")},
                                     {.inputs = {of({3}), of({4})}, .attrs = attrs("to")},
                                     {.inputs = {of({3})}, .attrs = attrs("from")}};
        },
};

extern const OpDef op_receive = {
    .name = "receive",
    .summary = "a message from one rank along an axis of the mesh",
    .infer = infer_receive,
    .index_map = [](const OpCall& call) { return no_letters({}, infer_receive(call)); },
    .flops = [](const OpCall&) { return int64_t{0}; },
    .differentiable = false,
    .wants_dense = true,
    .meaning =
        [](Builder& b, std::span<const Value>, const Attrs& attrs) {
          std::vector<Value> all;
          const auto count = attrs.find("count");
          const int64_t times = count == attrs.end() ? 1 : std::get<int64_t>(count->second);
          for (int64_t i = 0; i < times; ++i) {
            const auto dtype = attrs.find("dtype");
            all.push_back(b.emit(
                "fill", {},
                {{"shape", attrs.at("shape")},
                 {"value", 0.0},
                 {"dtype", dtype == attrs.end() ? Attr(std::string("f32")) : dtype->second}}));
          }
          return all;
        },
    .to_one_rank = true,
    .samples =
        [] {
          return std::vector<Sample>{{.inputs = {}, .attrs = receive_attrs({3, 5}, 1)},
                                     {.inputs = {}, .attrs = receive_attrs({}, 3)}};
        },
    .refused =
        [] {
          Attrs unknown = receive_attrs({3}, 1);
          unknown["dtype"] = std::string("moon");
          return std::vector<Sample>{{.inputs = {}, .attrs = unknown},
                                     {.inputs = {}, .attrs = receive_attrs({3}, 0)},
                                     {.inputs = {of({3})}, .attrs = receive_attrs({3}, 1)}};
        },
};

}  // namespace adjoint
