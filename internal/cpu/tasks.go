package cpu

// tasks are the tasks of the operators, each of which keeps its own: handing one to the pool allocates nothing.
type tasks struct {
	embed     embedTask
	norm      normTask
	rope      ropeTask
	inputs    inputTask
	products  productTask
	keys      keysTask
	attend    attendTask
	folds     foldTask
	choose    chooseTask
	conv      convTask
	gdn       gdnTask
	gatedNorm gatedNorm
	routes    routeTask
	combine   combineTask
	addGated  addGatedTask
	mix       mixTask
	write     writeTask
	ngram     ngramTask

	draftStore   draftStore
	draftConv    draftConv
	draftPrepare draftPrepare
	draftAttend  draftAttend
}
