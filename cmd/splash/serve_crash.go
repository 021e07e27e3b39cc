package main

import (
	"os"

	"splash/internal/crash"
	"splash/internal/engine"
	"splash/internal/server"
	"splash/internal/target"
)

// traceCrashes has faults of the engine written down where SPLASH_CRASH_TRACE asks for it. It returns the log that the
// target is opened with, and the recorder; nil: none.
func traceCrashes(o *target.Options, console *server.Console, log func(string)) (func(string), *crash.Recorder) {
	if os.Getenv("SPLASH_CRASH_TRACE") != "1" {
		return log, nil
	}
	r := crash.New(crash.Dir(os.Getenv))
	o.Engine.Fault = func(f *engine.Fault) {
		if path, err := r.Record(f); err != nil {
			console.Errorf("The engine's fault could not be written down: %v", err)
		} else {
			console.Errorf("The engine's fault is written down in %s, with the tokens of its requests", path)
		}
	}
	return func(line string) {
		r.Log(line)
		log(line)
	}, r
}
