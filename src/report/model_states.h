// Model states of one rank, by the kinds of which the literature writes (Rajbhandari et al., 2019):
// master weights and optimizer state lie there for the whole step; 16-bit or gathered copies of
// weights and gradients of weights come and go, so of them those count that are there when they are
// most.
#pragma once
#include <nlohmann/json.hpp>

#include "plan/plan.h"

namespace adjoint {

struct ModelStates {
  Bytes parameters = {0}, optimizer = {0};  // held, on the device and on the host
  // At the moment at which these three are most together.
  Bytes copies = {0};     // what weights were cast or gathered to
  Bytes gradients = {0};  // whole ones
  Bytes pieces = {0};     // gradients of which the rank has its piece
  Bytes all() const { return parameters + optimizer + copies + gradients + pieces; }
};
ModelStates model_states(const Scheme& step, const Plan& plan);
nlohmann::json model_states_json(const ModelStates& states);

}  // namespace adjoint
