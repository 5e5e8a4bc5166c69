// A schedule over time, in SVG: ranks down, time along, slots by colour with the numbers of their
// parts, bubbles hatched, and under each rank the bytes that its parts in flight keep.
#pragma once
#include <string>
#include <vector>

#include "report/stage_table.h"
#include "schedules/simulate.h"

namespace adjoint {

// One walk through a schedule: a predicted one, or a measured one beside it.
struct SchedulePanel {
  std::string title = {};  // "predicted for h200"; "": the summary alone
  const Schedule* schedule = nullptr;
  const Simulated* simulated = nullptr;
};

// Panels lie one below the other and share one scale of time and one of bytes. Files stay small:
// where slots are too narrow to be seen, columns show each kind's share of the time.
std::string schedule_chart(const std::vector<SchedulePanel>& panels, const std::string& title,
                           const std::string& subtitle);
std::string schedule_chart(const Schedule& schedule, const Simulated& simulated,
                           const std::string& title, const std::string& subtitle);
// A measured step above what the simulator makes of slots that were measured on each rank alone.
std::string schedule_chart(const StagesAtWork& work, const std::string& title,
                           const std::string& how);

}  // namespace adjoint
