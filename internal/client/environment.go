package client

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// An Environment is the variables of a process, NAME=VALUE each. Of several of one name the last counts.
type Environment []string

// Get returns the value of a variable, "" of one that is not set.
func (e Environment) Get(name string) string {
	for _, v := range slices.Backward(e) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// Set gives a variable a value.
func (e *Environment) Set(name, value string) {
	e.Unset(name)
	*e = append(*e, name+"="+value)
}

// Unset removes a variable.
func (e *Environment) Unset(name string) {
	*e = slices.DeleteFunc(*e, func(v string) bool { return strings.HasPrefix(v, name+"=") })
}

// home is the user's directory.
func (e Environment) home() (string, error) {
	if home := e.Get("HOME"); home != "" {
		return home, nil
	}
	return os.UserHomeDir()
}

// path is a directory as users write it in a variable: ~ is their own.
func (e Environment) path(value string) (string, error) {
	if value == "~" || strings.HasPrefix(value, "~/") {
		home, err := e.home()
		return filepath.Join(home, strings.TrimPrefix(value, "~")), err
	}
	return value, nil
}
