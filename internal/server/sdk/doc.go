// Package sdk holds the server to the official clients: the JavaScript libraries of OpenAI and Anthropic, at the versions of
// package-lock.json, talk to splash serve. Its tests need node and npm, and SPLASH_SDK_TESTS=1.
package sdk
