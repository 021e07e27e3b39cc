package conformance_test

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
)

// full runs every format at every shape.
var full = flag.Bool("full", false, "try every format at every shape, which takes long")

// A tableRow is an operator group on a backend: cases, values compared, and the worst error by its bound.
type tableRow struct {
	group, backend string
	cases, values  int
	worst          float64
}

// table is what the rows of the suite found.
var table struct {
	sync.Mutex
	rows []*tableRow
}

// report adds what a pair compared to its row of the table.
func (p *pair) report(b operatorBackend, group string) {
	table.Lock()
	defer table.Unlock()
	at := slices.IndexFunc(table.rows, func(r *tableRow) bool { return r.group == group && r.backend == b.name })
	if at < 0 {
		at = len(table.rows)
		table.rows = append(table.rows, &tableRow{group: group, backend: b.name})
	}
	r := table.rows[at]
	r.cases++
	r.values += p.values
	r.worst = max(r.worst, p.worst)
}

// TestMain prints the table, a line an operator group and backend. A run of everything fails on a kernel that no row dispatched.
func TestMain(m *testing.M) {
	code := m.Run()
	if testing.Verbose() {
		printTable(os.Stdout)
	}
	given := func(name string) bool { return flag.Lookup(name).Value.String() != "" }
	if code == 0 && !given("test.run") && !given("test.skip") && !given("test.list") {
		code = coverage()
	}
	os.Exit(code)
}

func printTable(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	slices.SortStableFunc(table.rows, func(a, b *tableRow) int { return strings.Compare(a.group, b.group) })
	for _, r := range table.rows {
		fmt.Fprintf(w, "%s\t%s\t%d cases\t%d values\tworst error / bound %.3f\n", r.group, r.backend, r.cases, r.values, r.worst)
	}
	w.Flush()
}

func coverage() int {
	unused, all, err := unusedKernels()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Printf("%d kernels of the metal backend, %d dispatched\n", all, all-len(unused))
	if len(unused) > 0 {
		fmt.Println("not dispatched:", strings.Join(unused, " "))
		return 1
	}
	return 0
}
