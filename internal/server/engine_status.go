package server

import (
	"time"

	"splash/internal/chat/ojson"
	"splash/internal/engine"
	"splash/internal/prefixstore"
)

// ms is a duration as /status has it.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// perSecond is a rate; 0 of no time.
func perSecond(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// engineStatus adds the sections of the engine.
func (s *Server) engineStatus(o *ojson.Object, e *engine.Stats) {
	h := &e.Health
	transport := ojson.NewObject(
		"ready", s.isReady(), "recovering", h.State == engine.Recovering, "stopped", s.stopping(),
		"pending", e.Waiting+e.Active+e.Suspended, "pending_limit", s.o.Queue, "restarts", h.Restarts)
	if h.LastFailure != "" && (h.State == engine.Recovering || h.State == engine.GivenUp) {
		transport.Set("error", h.State.String())
	}
	transport.Set("last_crash_trace", nil)
	if last := s.model.LastCrash; last != nil && last() != "" {
		transport.Set("last_crash_trace", last())
	}
	o.Set("transport", transport)
	o.Set("scheduler", ojson.NewObject(
		"queued", e.Waiting, "active", e.Active, "passes", e.Passes, "waiting_resources", e.Admission.Memory, "waiting_prefix", e.Admission.Prefix,
		"prefilling", e.Prefilling, "decoding", e.Decoding, "waiting_mask", 0, "prefill_batches", e.PromptBatches,
		"prefill_rows", e.PromptRows, "decode_batches", e.DecodeBatches,
		"decode_batches_by_width", ojson.NewObject("b1", e.Widths[0], "b2", e.Widths[1], "b3", e.Widths[2], "b4", e.Widths[3])))
	o.Set("admission", ojson.NewObject(
		"waiting", e.Waiting, "waiting_memory", e.Admission.Memory, "waiting_concurrency", e.Admission.Lanes,
		"held_behind_refusal", e.Admission.Held, "restoring", 0, "suspended", e.Suspended, "draining", s.stopping(),
		"oldest_wait_ms", ms(e.Admission.Oldest)))
	o.Set("active_requests", liveStatus(s.model.Engine.Live()))
	o.Set("weights", s.weightsStatus(h))
	if e.Disk != nil {
		o.Set("disk", diskStatus(e.Disk))
	}
	if m := s.model.Memory; m != nil {
		o.Set("memory_plan", ojson.NewObject(
			"valid", true, "maximum_context_tokens", s.model.Context, "kv_format", m.KV, "device", m.Limit, "model", m.Weights,
			"passes", m.Passes, "lane", m.Lane, "token", m.Token, "budget", m.Limit))
	}
	if e.Memory.Limit > 0 {
		o.Set("memory_actual", ojson.NewObject("current_bytes", e.Memory.Charged, "peak_bytes", e.Memory.Peak))
		o.Set("memory_governor", ojson.NewObject(
			"limit_bytes", e.Memory.Limit, "charged_bytes", e.Memory.Charged, "headroom_bytes", max(0, e.Memory.Limit-e.Memory.Charged),
			"growth_allowed", true, "denied_reservations", e.Memory.Denied))
	}
}

func liveStatus(live []engine.RequestStatus) []any {
	list := make([]any, len(live))
	for i, r := range live {
		list[i] = ojson.NewObject(
			"id", int64(r.ID), "phase", r.Phase, "priority", r.Priority.String(), "prompt_tokens", r.Prompt, "prompt_processed", r.Processed,
			"generated_tokens", r.Output, "max_new_tokens", r.Limit, "age_ms", ms(r.Age))
	}
	return list
}

// weightsStatus is the section on weights that are released when there is nothing to do.
func (s *Server) weightsStatus(h *engine.Health) *ojson.Object {
	var seconds any
	if d := s.model.IdleRelease; d > 0 {
		seconds = d.Seconds()
	}
	return ojson.NewObject(
		"idle_release_seconds", seconds, "state", h.State.String(), "released", h.Released, "restores", h.Restores,
		"restore_failures", h.RestoreFailures)
}

// speedStatus adds what passes took to the section of metrics.
func speedStatus(o *ojson.Object, e *engine.Stats) {
	o.Set("prefill_wall_ms", ms(e.PromptTime))
	o.Set("prefill_tokens_per_second", perSecond(e.PromptRows, e.PromptTime))
	o.Set("decode_wall_ms", ms(e.DecodeTime))
	if e.DecodeBatches > 0 {
		o.Set("decode_cycle_ms", ms(e.DecodeTime)/float64(e.DecodeBatches))
	}
	o.Set("decode_tokens_per_second", perSecond(e.OutputTokens, e.DecodeTime))
	o.Set("capacity_failures", e.CapacityFailures)
	o.Set("metal_failures", e.Health.Failures)
}

// diskStatus is the section on prompts that are kept on a disk.
func diskStatus(d *prefixstore.Stats) *ojson.Object {
	return ojson.NewObject(
		"capacity_bytes", d.Capacity, "used_bytes", d.Used, "file_bytes", d.File, "read_bytes", d.Read, "written_bytes", d.Written,
		"pages", d.Pages, "states", d.States, "hits", d.Hits, "corrupt", d.Corrupt, "evictions", d.Evicted, "persistent", d.Persistent,
		"taken_back", d.TakenBack, "failed", d.Failed)
}

// suspensionStatus adds the lanes that were given up to the section of the cache.
func suspensionStatus(o *ojson.Object, e *engine.Stats) {
	o.Set("kv_disk_hit_tokens", e.Cache.DiskTokens)
	o.Set("priority_suspensions", e.PrioritySuspensions)
	o.Set("resource_suspensions", e.ResourceSuspensions)
	o.Set("resource_resumptions", e.Resumptions)
	o.Set("resource_replay_tokens", e.ReplayTokens)
}

// collectEngine tells Prometheus the engine's figures.
func (s *Server) collectEngine(e *engine.Stats, gauge func(name string, v float64, labels ...string), counter func(name string, v int64)) {
	for name, v := range map[string]int{
		"scheduler_waiting_resources": e.Admission.Memory, "scheduler_waiting_prefix": e.Admission.Prefix, "scheduler_prefilling": e.Prefilling,
		"scheduler_decoding": e.Decoding, "admission_waiting_memory": e.Admission.Memory, "admission_waiting_concurrency": e.Admission.Lanes,
		"admission_held_behind_refusal": e.Admission.Held, "admission_restoring": 0, "admission_suspended": e.Suspended,
	} {
		gauge(name, float64(v))
	}
	for name, v := range map[string]int64{
		"scheduler_prefill_batches": e.PromptBatches, "scheduler_prefill_rows": e.PromptRows, "scheduler_decode_batches": e.DecodeBatches,
		"scheduler_decode_b1": e.Widths[0], "scheduler_decode_b2": e.Widths[1], "scheduler_decode_b3": e.Widths[2],
		"scheduler_decode_b4": e.Widths[3], "cache_priority_suspensions": e.PrioritySuspensions,
		"cache_resource_suspensions": e.ResourceSuspensions, "cache_resource_resumptions": e.Resumptions,
		"cache_resource_replay_tokens": e.ReplayTokens, "capacity_failures": e.CapacityFailures, "metal_failures": e.Health.Failures,
		"target_prefill_rows": e.PromptRows, "memory_denied_reservations": e.Memory.Denied,
	} {
		counter(name+"_total", v)
	}
	gauge("admission_oldest_wait_milliseconds", ms(e.Admission.Oldest))
	gauge("metal_healthy", truth(e.Health.State != engine.Recovering && e.Health.State != engine.GivenUp))
	counter("prefill_wall_milliseconds_total", e.PromptTime.Milliseconds())
	gauge("prefill_tokens_per_second", perSecond(e.PromptRows, e.PromptTime))
	counter("decode_wall_milliseconds_total", e.DecodeTime.Milliseconds())
	counter("decode_cycle_milliseconds_total", e.DecodeTime.Milliseconds())
	gauge("decode_tokens_per_second", perSecond(e.OutputTokens, e.DecodeTime))
	if e.Memory.Limit > 0 {
		gauge("memory_limit_bytes", float64(e.Memory.Limit))
		gauge("memory_current_bytes", float64(e.Memory.Charged))
		gauge("memory_peak_bytes", float64(e.Memory.Peak))
		gauge("memory_headroom_bytes", float64(max(0, e.Memory.Limit-e.Memory.Charged)))
	}
}
