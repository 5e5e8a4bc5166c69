// The schedules that are made by name: a function for each that gives the list of one rank.
#pragma once
#include <string_view>
#include <vector>

#include "schedules/schedule.h"

namespace adjoint {

struct PipelineShape {
  int ranks = 1, parts = 1, per_rank = 1;
};
using RankList = std::vector<Slot> (*)(const PipelineShape& shape, int rank);

std::vector<Slot> gpipe_list(const PipelineShape& shape, int rank);
std::vector<Slot> one_f_one_b_list(const PipelineShape& shape, int rank);
std::vector<Slot> interleaved_list(const PipelineShape& shape, int rank);
std::vector<Slot> zero_bubble_list(const PipelineShape& shape, int rank);
std::vector<Slot> zb_h2_list(const PipelineShape& shape, int rank);

struct ScheduleEntry {
  std::string_view name;
  RankList list;
  bool many_chunks = false;  // a rank may hold several; the parts are then a multiple of the ranks
};
constexpr ScheduleEntry kSchedules[] = {{"gpipe", gpipe_list},
                                        {"1f1b", one_f_one_b_list},
                                        {"interleaved", interleaved_list, true},
                                        {"zero_bubble", zero_bubble_list},
                                        {"zb_h2", zb_h2_list}};

}  // namespace adjoint
