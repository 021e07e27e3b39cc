package prefixstore

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// childVariable names the directory that a process of this test writes to until it is killed.
const childVariable = "SPLASH_PREFIXSTORE_CHILD"

func killedOptions(dir string) Options {
	o := options(dir)
	o.Quota = 1 << 30
	return o
}

// killedPrompt is what the child stores as the i-th: half of them go on from one before.
func killedPrompt(i int) []int32 {
	return append(prompt(uint64(i/2), 20), prompt(uint64(1000+i), 1+i%7)...)
}

// TestChild is the process that is killed.
func TestChild(t *testing.T) {
	dir := os.Getenv(childVariable)
	if dir == "" {
		return
	}
	s := open(t, killedOptions(dir))
	for i := 0; ; i++ {
		put(t, s, killedPrompt(i))
		fmt.Println("stored", i)
	}
}

// TestKilled kills a process while it writes: the next one takes back everything that was said to be stored, and nothing
// that is wrong.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	for round, after := range []int{1, 7, 30} {
		c := exec.Command(os.Args[0], "-test.run=^TestChild$")
		c.Env = append(os.Environ(), childVariable+"="+dir)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		stored := -1
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			n, err := strconv.Atoi(lines.Text()[len("stored "):])
			if err != nil {
				t.Fatalf("the child says %q", lines.Text())
			}
			if stored = max(stored, n); n == after {
				c.Process.Kill()
			}
		}
		c.Wait()
		if stored < after {
			t.Fatalf("the child stored %d", stored)
		}
		s := open(t, killedOptions(dir))
		holds(t, s)
		for i := range stored + 50 { // some after what it said are there too
			if there := get(t, s, killedPrompt(i)); !there && i <= stored {
				t.Errorf("round %d: entry %d of %d is not there", round, i, stored)
			}
		}
		if st := s.Stats(); st.Corrupt != 0 || st.TakenBack == 0 {
			t.Errorf("round %d: %+v", round, st)
		}
		holds(t, s)
		s.Close()
	}
}
