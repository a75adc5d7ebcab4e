#pragma once
// What the JSON forms share.

#include <nlohmann/json.hpp>
#include <string>

#include "reporting/events.h"

namespace trainer::reporting {

using Json = nlohmann::ordered_json;

// Loss, top1, top5, macro_f1, num_samples and those with averaged parameters; the ones that the event does not have are left out.
inline void add_scores(Json& object, const ValidationEvent& event) {
  object["loss"] = event.loss;
  if (event.top1) object["top1"] = *event.top1;
  if (event.top5) object["top5"] = *event.top5;
  if (event.macro_f1) object["macro_f1"] = *event.macro_f1;
  object["num_samples"] = event.num_samples;
  if (event.ema_loss) object["ema_loss"] = *event.ema_loss;
  if (event.ema_top1) object["ema_top1"] = *event.ema_top1;
  if (event.ema_top5) object["ema_top5"] = *event.ema_top5;
}

// `indent` -1: on one line. Numbers have the digits that give the same double back. Always valid JSON: what is not finite becomes
// null, and bytes that are no UTF-8 (of a path in a message) the replacement character.
inline std::string to_text(const Json& object, int indent = -1) { return object.dump(indent, ' ', false, Json::error_handler_t::replace); }

}  // namespace trainer::reporting
