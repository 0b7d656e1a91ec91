; ModuleID = 'probes.c'
source_filename = "probes.c"
target datalayout = "e-m:e-p:64:64-i64:64-i128:128-n32:64-S128"
target triple = "bpf"

%struct.copy = type { i64, i64, [6 x i64] }
%struct.anon = type { [27 x i32]*, [4096 x i32]* }
%struct.anon.0 = type { [1 x i32]*, [4096 x i32]*, i64*, i64* }
%struct.anon.1 = type { [5 x i32]*, [4096 x i32]*, i64*, i64* }

@wanted = dso_local global i64 0, section ".data.settings", align 8, !dbg !0
@hits = dso_local global [8 x %struct.copy] zeroinitializer, section ".data.slots", align 8, !dbg !9
@lost = dso_local global [8 x [2 x i64]] zeroinitializer, section ".data.counters", align 8, !dbg !24
@_license = dso_local global [4 x i8] c"GPL\00", section "license", align 1, !dbg !29
@events = dso_local global %struct.anon zeroinitializer, section ".maps", align 8, !dbg !35
@counts = dso_local global %struct.anon.0 zeroinitializer, section ".maps", align 8, !dbg !49
@percpu = dso_local global %struct.anon.1 zeroinitializer, section ".maps", align 8, !dbg !62
@llvm.compiler.used = appending global [19 x i8*] [i8* getelementptr inbounds ([4 x i8], [4 x i8]* @_license, i32 0, i32 0), i8* bitcast (i32 (i8*)* @bad to i8*), i8* bitcast (i32 (i8*)* @begin_0 to i8*), i8* bitcast (i32 (i8*)* @count_kprobe to i8*), i8* bitcast (i32 (i8*)* @count_multi to i8*), i8* bitcast (i32 (i8*)* @count_perf to i8*), i8* bitcast (i32 (i8*)* @count_return to i8*), i8* bitcast (i32 (i8*)* @count_tracepoint to i8*), i8* bitcast (i32 (i8*)* @count_tracing to i8*), i8* bitcast (%struct.anon.0* @counts to i8*), i8* bitcast (i32 (i8*)* @event_kprobe to i8*), i8* bitcast (i32 (i8*)* @event_tracepoint to i8*), i8* bitcast (%struct.anon* @events to i8*), i8* bitcast (i32 (i64*)* @hit_iter to i8*), i8* bitcast (i32 (i8*)* @hit_tracing to i8*), i8* bitcast ([8 x %struct.copy]* @hits to i8*), i8* bitcast ([8 x [2 x i64]]* @lost to i8*), i8* bitcast (%struct.anon.1* @percpu to i8*), i8* bitcast (i64* @wanted to i8*)], section "llvm.metadata"

; Function Attrs: nounwind
define dso_local i32 @begin_0(i8* nocapture readnone %0) #0 section "pytrace/begin_0" !dbg !120 {
  call void @llvm.dbg.value(metadata i8* undef, metadata !124, metadata !DIExpression()), !dbg !125
  %2 = tail call i32 inttoptr (i64 8 to i32 ()*)() #4, !dbg !126
  %3 = and i32 %2, 7, !dbg !134
  %4 = zext i32 %3 to i64, !dbg !135
  call void @llvm.dbg.value(metadata !DIArgList([8 x %struct.copy]* @hits, i64 %4), metadata !131, metadata !DIExpression(DW_OP_LLVM_arg, 0, DW_OP_LLVM_arg, 1, DW_OP_constu, 64, DW_OP_mul, DW_OP_plus, DW_OP_stack_value)) #4, !dbg !136
  %5 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %4, i32 1, !dbg !137
  %6 = load i64, i64* %5, align 8, !dbg !138, !tbaa !139
  %7 = add i64 %6, 1, !dbg !138
  store i64 %7, i64* %5, align 8, !dbg !138, !tbaa !139
  %8 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %4, i32 0, !dbg !144
  store i64 1, i64* %8, align 8, !dbg !145, !tbaa !146
  ret i32 7, !dbg !147
}

; Function Attrs: nounwind
define dso_local i32 @event_kprobe(i8* noundef %0) #0 section "pytrace/event_kprobe" !dbg !148 {
  call void @llvm.dbg.value(metadata i8* %0, metadata !150, metadata !DIExpression()), !dbg !151
  call void @llvm.dbg.value(metadata i8* %0, metadata !152, metadata !DIExpression()) #4, !dbg !155
  %2 = load i64, i64* @wanted, align 8, !dbg !157, !tbaa !164
  %3 = icmp eq i64 %2, 0, !dbg !157
  br i1 %3, label %9, label %4, !dbg !165

4:                                                ; preds = %1
  %5 = tail call i64 inttoptr (i64 14 to i64 ()*)() #4, !dbg !166
  %6 = lshr i64 %5, 32, !dbg !167
  %7 = load i64, i64* @wanted, align 8, !dbg !168, !tbaa !164
  %8 = icmp eq i64 %6, %7, !dbg !169
  br i1 %8, label %9, label %41, !dbg !170

9:                                                ; preds = %4, %1
  %10 = tail call i32 inttoptr (i64 8 to i32 ()*)() #4, !dbg !171
  %11 = and i32 %10, 7, !dbg !173
  %12 = zext i32 %11 to i64, !dbg !174
  call void @llvm.dbg.value(metadata !DIArgList([8 x %struct.copy]* @hits, i64 %12), metadata !131, metadata !DIExpression(DW_OP_LLVM_arg, 0, DW_OP_LLVM_arg, 1, DW_OP_constu, 64, DW_OP_mul, DW_OP_plus, DW_OP_stack_value)) #4, !dbg !175
  %13 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %12, i32 1, !dbg !176
  %14 = load i64, i64* %13, align 8, !dbg !177, !tbaa !139
  %15 = add i64 %14, 1, !dbg !177
  store i64 %15, i64* %13, align 8, !dbg !177, !tbaa !139
  %16 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %12, i32 0, !dbg !178
  store i64 1, i64* %16, align 8, !dbg !179, !tbaa !146
  %17 = tail call i64 inttoptr (i64 174 to i64 (i8*)*)(i8* noundef %0) #4, !dbg !180
  call void @llvm.dbg.value(metadata i64 %17, metadata !181, metadata !DIExpression()) #4, !dbg !196
  %18 = tail call i8* inttoptr (i64 131 to i8* (i8*, i64, i64)*)(i8* noundef bitcast (%struct.anon* @events to i8*), i64 noundef 32, i64 noundef 0) #4, !dbg !198
  call void @llvm.dbg.value(metadata i8* %18, metadata !186, metadata !DIExpression()) #4, !dbg !196
  %19 = icmp eq i8* %18, null, !dbg !199
  %20 = tail call i32 inttoptr (i64 8 to i32 ()*)() #4, !dbg !196
  %21 = and i32 %20, 7, !dbg !196
  %22 = zext i32 %21 to i64, !dbg !196
  br i1 %19, label %23, label %27, !dbg !201

23:                                               ; preds = %9
  %24 = getelementptr inbounds [8 x [2 x i64]], [8 x [2 x i64]]* @lost, i64 0, i64 %22, i64 0, !dbg !202
  %25 = load i64, i64* %24, align 8, !dbg !204, !tbaa !164
  %26 = add i64 %25, 1, !dbg !204
  store i64 %26, i64* %24, align 8, !dbg !204, !tbaa !164
  br label %41, !dbg !205

27:                                               ; preds = %9
  call void @llvm.dbg.value(metadata i8* %18, metadata !186, metadata !DIExpression()) #4, !dbg !196
  call void @llvm.dbg.value(metadata !DIArgList([8 x %struct.copy]* @hits, i64 %22), metadata !195, metadata !DIExpression(DW_OP_LLVM_arg, 0, DW_OP_LLVM_arg, 1, DW_OP_constu, 64, DW_OP_mul, DW_OP_plus, DW_OP_stack_value)) #4, !dbg !196
  %28 = bitcast i8* %18 to i32*, !dbg !206
  store i32 0, i32* %28, align 8, !dbg !207, !tbaa !208
  %29 = getelementptr inbounds i8, i8* %18, i64 4, !dbg !211
  %30 = bitcast i8* %29 to i32*, !dbg !211
  store i32 0, i32* %30, align 4, !dbg !212, !tbaa !213
  %31 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %22, i32 1, !dbg !214
  %32 = load i64, i64* %31, align 8, !dbg !214, !tbaa !139
  %33 = getelementptr inbounds i8, i8* %18, i64 8, !dbg !215
  %34 = bitcast i8* %33 to i64*, !dbg !215
  store i64 %32, i64* %34, align 8, !dbg !216, !tbaa !217
  %35 = tail call i64 inttoptr (i64 14 to i64 ()*)() #4, !dbg !218
  %36 = lshr i64 %35, 32, !dbg !219
  %37 = getelementptr inbounds i8, i8* %18, i64 16, !dbg !220
  %38 = bitcast i8* %37 to i64*, !dbg !220
  store i64 %36, i64* %38, align 8, !dbg !221, !tbaa !222
  %39 = getelementptr inbounds i8, i8* %18, i64 24, !dbg !223
  %40 = bitcast i8* %39 to i64*, !dbg !223
  store i64 %17, i64* %40, align 8, !dbg !224, !tbaa !225
  tail call void inttoptr (i64 132 to void (i8*, i64)*)(i8* noundef nonnull %18, i64 noundef 0) #4, !dbg !226
  br label %41

41:                                               ; preds = %4, %23, %27
  ret i32 0, !dbg !227
}

; Function Attrs: nounwind
define dso_local i32 @event_tracepoint(i8* noundef %0) #0 section "pytrace/event_tracepoint" !dbg !228 {
  call void @llvm.dbg.value(metadata i8* %0, metadata !230, metadata !DIExpression()), !dbg !231
  call void @llvm.dbg.value(metadata i8* %0, metadata !152, metadata !DIExpression()) #4, !dbg !232
  %2 = load i64, i64* @wanted, align 8, !dbg !234, !tbaa !164
  %3 = icmp eq i64 %2, 0, !dbg !234
  br i1 %3, label %9, label %4, !dbg !236

4:                                                ; preds = %1
  %5 = tail call i64 inttoptr (i64 14 to i64 ()*)() #4, !dbg !237
  %6 = lshr i64 %5, 32, !dbg !238
  %7 = load i64, i64* @wanted, align 8, !dbg !239, !tbaa !164
  %8 = icmp eq i64 %6, %7, !dbg !240
  br i1 %8, label %9, label %41, !dbg !241

9:                                                ; preds = %4, %1
  %10 = tail call i32 inttoptr (i64 8 to i32 ()*)() #4, !dbg !242
  %11 = and i32 %10, 7, !dbg !244
  %12 = zext i32 %11 to i64, !dbg !245
  call void @llvm.dbg.value(metadata !DIArgList([8 x %struct.copy]* @hits, i64 %12), metadata !131, metadata !DIExpression(DW_OP_LLVM_arg, 0, DW_OP_LLVM_arg, 1, DW_OP_constu, 64, DW_OP_mul, DW_OP_plus, DW_OP_stack_value)) #4, !dbg !246
  %13 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %12, i32 1, !dbg !247
  %14 = load i64, i64* %13, align 8, !dbg !248, !tbaa !139
  %15 = add i64 %14, 1, !dbg !248
  store i64 %15, i64* %13, align 8, !dbg !248, !tbaa !139
  %16 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %12, i32 0, !dbg !249
  store i64 1, i64* %16, align 8, !dbg !250, !tbaa !146
  %17 = tail call i64 inttoptr (i64 174 to i64 (i8*)*)(i8* noundef %0) #4, !dbg !251
  call void @llvm.dbg.value(metadata i64 %17, metadata !181, metadata !DIExpression()) #4, !dbg !252
  %18 = tail call i8* inttoptr (i64 131 to i8* (i8*, i64, i64)*)(i8* noundef bitcast (%struct.anon* @events to i8*), i64 noundef 32, i64 noundef 0) #4, !dbg !254
  call void @llvm.dbg.value(metadata i8* %18, metadata !186, metadata !DIExpression()) #4, !dbg !252
  %19 = icmp eq i8* %18, null, !dbg !255
  %20 = tail call i32 inttoptr (i64 8 to i32 ()*)() #4, !dbg !252
  %21 = and i32 %20, 7, !dbg !252
  %22 = zext i32 %21 to i64, !dbg !252
  br i1 %19, label %23, label %27, !dbg !256

23:                                               ; preds = %9
  %24 = getelementptr inbounds [8 x [2 x i64]], [8 x [2 x i64]]* @lost, i64 0, i64 %22, i64 0, !dbg !257
  %25 = load i64, i64* %24, align 8, !dbg !258, !tbaa !164
  %26 = add i64 %25, 1, !dbg !258
  store i64 %26, i64* %24, align 8, !dbg !258, !tbaa !164
  br label %41, !dbg !259

27:                                               ; preds = %9
  call void @llvm.dbg.value(metadata i8* %18, metadata !186, metadata !DIExpression()) #4, !dbg !252
  call void @llvm.dbg.value(metadata !DIArgList([8 x %struct.copy]* @hits, i64 %22), metadata !195, metadata !DIExpression(DW_OP_LLVM_arg, 0, DW_OP_LLVM_arg, 1, DW_OP_constu, 64, DW_OP_mul, DW_OP_plus, DW_OP_stack_value)) #4, !dbg !252
  %28 = bitcast i8* %18 to i32*, !dbg !260
  store i32 0, i32* %28, align 8, !dbg !261, !tbaa !208
  %29 = getelementptr inbounds i8, i8* %18, i64 4, !dbg !262
  %30 = bitcast i8* %29 to i32*, !dbg !262
  store i32 0, i32* %30, align 4, !dbg !263, !tbaa !213
  %31 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %22, i32 1, !dbg !264
  %32 = load i64, i64* %31, align 8, !dbg !264, !tbaa !139
  %33 = getelementptr inbounds i8, i8* %18, i64 8, !dbg !265
  %34 = bitcast i8* %33 to i64*, !dbg !265
  store i64 %32, i64* %34, align 8, !dbg !266, !tbaa !217
  %35 = tail call i64 inttoptr (i64 14 to i64 ()*)() #4, !dbg !267
  %36 = lshr i64 %35, 32, !dbg !268
  %37 = getelementptr inbounds i8, i8* %18, i64 16, !dbg !269
  %38 = bitcast i8* %37 to i64*, !dbg !269
  store i64 %36, i64* %38, align 8, !dbg !270, !tbaa !222
  %39 = getelementptr inbounds i8, i8* %18, i64 24, !dbg !271
  %40 = bitcast i8* %39 to i64*, !dbg !271
  store i64 %17, i64* %40, align 8, !dbg !272, !tbaa !225
  tail call void inttoptr (i64 132 to void (i8*, i64)*)(i8* noundef nonnull %18, i64 noundef 0) #4, !dbg !273
  br label %41

41:                                               ; preds = %4, %23, %27
  ret i32 0, !dbg !274
}

; Function Attrs: nounwind
define dso_local i32 @count_kprobe(i8* noundef %0) #0 section "pytrace/count_kprobe" !dbg !275 {
  %2 = alloca i64, align 8
  %3 = alloca i64, align 8
  call void @llvm.dbg.value(metadata i8* %0, metadata !277, metadata !DIExpression()), !dbg !278
  call void @llvm.dbg.value(metadata i8* %0, metadata !279, metadata !DIExpression()) #4, !dbg !285
  %4 = load i64, i64* @wanted, align 8, !dbg !287, !tbaa !164
  %5 = icmp eq i64 %4, 0, !dbg !287
  br i1 %5, label %11, label %6, !dbg !290

6:                                                ; preds = %1
  %7 = tail call i64 inttoptr (i64 14 to i64 ()*)() #4, !dbg !291
  %8 = lshr i64 %7, 32, !dbg !292
  %9 = load i64, i64* @wanted, align 8, !dbg !293, !tbaa !164
  %10 = icmp eq i64 %8, %9, !dbg !294
  br i1 %10, label %11, label %39, !dbg !295

11:                                               ; preds = %6, %1
  %12 = tail call i32 inttoptr (i64 8 to i32 ()*)() #4, !dbg !296
  %13 = and i32 %12, 7, !dbg !298
  %14 = zext i32 %13 to i64, !dbg !299
  call void @llvm.dbg.value(metadata !DIArgList([8 x %struct.copy]* @hits, i64 %14), metadata !131, metadata !DIExpression(DW_OP_LLVM_arg, 0, DW_OP_LLVM_arg, 1, DW_OP_constu, 64, DW_OP_mul, DW_OP_plus, DW_OP_stack_value)) #4, !dbg !300
  %15 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %14, i32 1, !dbg !301
  %16 = load i64, i64* %15, align 8, !dbg !302, !tbaa !139
  %17 = add i64 %16, 1, !dbg !302
  store i64 %17, i64* %15, align 8, !dbg !302, !tbaa !139
  %18 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %14, i32 0, !dbg !303
  store i64 1, i64* %18, align 8, !dbg !304, !tbaa !146
  %19 = bitcast i64* %2 to i8*, !dbg !305
  call void @llvm.lifetime.start.p0i8(i64 8, i8* nonnull %19) #4, !dbg !305
  %20 = tail call i64 inttoptr (i64 174 to i64 (i8*)*)(i8* noundef %0) #4, !dbg !306
  call void @llvm.dbg.value(metadata i64 %20, metadata !282, metadata !DIExpression()) #4, !dbg !285
  store i64 %20, i64* %2, align 8, !dbg !307, !tbaa !164
  %21 = bitcast i64* %3 to i8*, !dbg !305
  call void @llvm.lifetime.start.p0i8(i64 8, i8* nonnull %21) #4, !dbg !305
  call void @llvm.dbg.value(metadata i64 1, metadata !283, metadata !DIExpression()) #4, !dbg !285
  store i64 1, i64* %3, align 8, !dbg !308, !tbaa !164
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !285
  %22 = call i8* inttoptr (i64 1 to i8* (i8*, i8*)*)(i8* noundef bitcast (%struct.anon.1* @percpu to i8*), i8* noundef nonnull %19) #4, !dbg !309
  %23 = bitcast i8* %22 to i64*, !dbg !309
  call void @llvm.dbg.value(metadata i64* %23, metadata !284, metadata !DIExpression()) #4, !dbg !285
  %24 = icmp eq i8* %22, null, !dbg !310
  br i1 %24, label %28, label %25, !dbg !312

25:                                               ; preds = %11
  %26 = load i64, i64* %23, align 8, !dbg !313, !tbaa !164
  %27 = add i64 %26, 1, !dbg !313
  store i64 %27, i64* %23, align 8, !dbg !313, !tbaa !164
  br label %30, !dbg !314

28:                                               ; preds = %11
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !285
  call void @llvm.dbg.value(metadata i64* %3, metadata !283, metadata !DIExpression(DW_OP_deref)) #4, !dbg !285
  %29 = call i64 inttoptr (i64 2 to i64 (i8*, i8*, i8*, i64)*)(i8* noundef bitcast (%struct.anon.1* @percpu to i8*), i8* noundef nonnull %19, i8* noundef nonnull %21, i64 noundef 0) #4, !dbg !315
  br label %30

30:                                               ; preds = %28, %25
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !285
  %31 = call i8* inttoptr (i64 1 to i8* (i8*, i8*)*)(i8* noundef bitcast (%struct.anon.0* @counts to i8*), i8* noundef nonnull %19) #4, !dbg !316
  call void @llvm.dbg.value(metadata i8* %31, metadata !284, metadata !DIExpression()) #4, !dbg !285
  %32 = icmp eq i8* %31, null, !dbg !317
  br i1 %32, label %36, label %33, !dbg !319

33:                                               ; preds = %30
  %34 = bitcast i8* %31 to i64*, !dbg !316
  call void @llvm.dbg.value(metadata i64* %34, metadata !284, metadata !DIExpression()) #4, !dbg !285
  %35 = atomicrmw add i64* %34, i64 1 seq_cst, align 8, !dbg !320
  br label %38, !dbg !320

36:                                               ; preds = %30
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !285
  call void @llvm.dbg.value(metadata i64* %3, metadata !283, metadata !DIExpression(DW_OP_deref)) #4, !dbg !285
  %37 = call i64 inttoptr (i64 2 to i64 (i8*, i8*, i8*, i64)*)(i8* noundef bitcast (%struct.anon.0* @counts to i8*), i8* noundef nonnull %19, i8* noundef nonnull %21, i64 noundef 0) #4, !dbg !321
  br label %38

38:                                               ; preds = %36, %33
  call void @llvm.lifetime.end.p0i8(i64 8, i8* nonnull %21) #4, !dbg !322
  call void @llvm.lifetime.end.p0i8(i64 8, i8* nonnull %19) #4, !dbg !322
  br label %39

39:                                               ; preds = %6, %38
  ret i32 0, !dbg !323
}

; Function Attrs: nounwind
define dso_local i32 @count_multi(i8* noundef %0) #0 section "pytrace/count_multi" !dbg !324 {
  %2 = alloca i64, align 8
  %3 = alloca i64, align 8
  call void @llvm.dbg.value(metadata i8* %0, metadata !326, metadata !DIExpression()), !dbg !327
  call void @llvm.dbg.value(metadata i8* %0, metadata !279, metadata !DIExpression()) #4, !dbg !328
  %4 = load i64, i64* @wanted, align 8, !dbg !330, !tbaa !164
  %5 = icmp eq i64 %4, 0, !dbg !330
  br i1 %5, label %11, label %6, !dbg !332

6:                                                ; preds = %1
  %7 = tail call i64 inttoptr (i64 14 to i64 ()*)() #4, !dbg !333
  %8 = lshr i64 %7, 32, !dbg !334
  %9 = load i64, i64* @wanted, align 8, !dbg !335, !tbaa !164
  %10 = icmp eq i64 %8, %9, !dbg !336
  br i1 %10, label %11, label %39, !dbg !337

11:                                               ; preds = %6, %1
  %12 = tail call i32 inttoptr (i64 8 to i32 ()*)() #4, !dbg !338
  %13 = and i32 %12, 7, !dbg !340
  %14 = zext i32 %13 to i64, !dbg !341
  call void @llvm.dbg.value(metadata !DIArgList([8 x %struct.copy]* @hits, i64 %14), metadata !131, metadata !DIExpression(DW_OP_LLVM_arg, 0, DW_OP_LLVM_arg, 1, DW_OP_constu, 64, DW_OP_mul, DW_OP_plus, DW_OP_stack_value)) #4, !dbg !342
  %15 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %14, i32 1, !dbg !343
  %16 = load i64, i64* %15, align 8, !dbg !344, !tbaa !139
  %17 = add i64 %16, 1, !dbg !344
  store i64 %17, i64* %15, align 8, !dbg !344, !tbaa !139
  %18 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %14, i32 0, !dbg !345
  store i64 1, i64* %18, align 8, !dbg !346, !tbaa !146
  %19 = bitcast i64* %2 to i8*, !dbg !347
  call void @llvm.lifetime.start.p0i8(i64 8, i8* nonnull %19) #4, !dbg !347
  %20 = tail call i64 inttoptr (i64 174 to i64 (i8*)*)(i8* noundef %0) #4, !dbg !348
  call void @llvm.dbg.value(metadata i64 %20, metadata !282, metadata !DIExpression()) #4, !dbg !328
  store i64 %20, i64* %2, align 8, !dbg !349, !tbaa !164
  %21 = bitcast i64* %3 to i8*, !dbg !347
  call void @llvm.lifetime.start.p0i8(i64 8, i8* nonnull %21) #4, !dbg !347
  call void @llvm.dbg.value(metadata i64 1, metadata !283, metadata !DIExpression()) #4, !dbg !328
  store i64 1, i64* %3, align 8, !dbg !350, !tbaa !164
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !328
  %22 = call i8* inttoptr (i64 1 to i8* (i8*, i8*)*)(i8* noundef bitcast (%struct.anon.1* @percpu to i8*), i8* noundef nonnull %19) #4, !dbg !351
  %23 = bitcast i8* %22 to i64*, !dbg !351
  call void @llvm.dbg.value(metadata i64* %23, metadata !284, metadata !DIExpression()) #4, !dbg !328
  %24 = icmp eq i8* %22, null, !dbg !352
  br i1 %24, label %28, label %25, !dbg !353

25:                                               ; preds = %11
  %26 = load i64, i64* %23, align 8, !dbg !354, !tbaa !164
  %27 = add i64 %26, 1, !dbg !354
  store i64 %27, i64* %23, align 8, !dbg !354, !tbaa !164
  br label %30, !dbg !355

28:                                               ; preds = %11
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !328
  call void @llvm.dbg.value(metadata i64* %3, metadata !283, metadata !DIExpression(DW_OP_deref)) #4, !dbg !328
  %29 = call i64 inttoptr (i64 2 to i64 (i8*, i8*, i8*, i64)*)(i8* noundef bitcast (%struct.anon.1* @percpu to i8*), i8* noundef nonnull %19, i8* noundef nonnull %21, i64 noundef 0) #4, !dbg !356
  br label %30

30:                                               ; preds = %28, %25
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !328
  %31 = call i8* inttoptr (i64 1 to i8* (i8*, i8*)*)(i8* noundef bitcast (%struct.anon.0* @counts to i8*), i8* noundef nonnull %19) #4, !dbg !357
  call void @llvm.dbg.value(metadata i8* %31, metadata !284, metadata !DIExpression()) #4, !dbg !328
  %32 = icmp eq i8* %31, null, !dbg !358
  br i1 %32, label %36, label %33, !dbg !359

33:                                               ; preds = %30
  %34 = bitcast i8* %31 to i64*, !dbg !357
  call void @llvm.dbg.value(metadata i64* %34, metadata !284, metadata !DIExpression()) #4, !dbg !328
  %35 = atomicrmw add i64* %34, i64 1 seq_cst, align 8, !dbg !360
  br label %38, !dbg !360

36:                                               ; preds = %30
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !328
  call void @llvm.dbg.value(metadata i64* %3, metadata !283, metadata !DIExpression(DW_OP_deref)) #4, !dbg !328
  %37 = call i64 inttoptr (i64 2 to i64 (i8*, i8*, i8*, i64)*)(i8* noundef bitcast (%struct.anon.0* @counts to i8*), i8* noundef nonnull %19, i8* noundef nonnull %21, i64 noundef 0) #4, !dbg !361
  br label %38

38:                                               ; preds = %36, %33
  call void @llvm.lifetime.end.p0i8(i64 8, i8* nonnull %21) #4, !dbg !362
  call void @llvm.lifetime.end.p0i8(i64 8, i8* nonnull %19) #4, !dbg !362
  br label %39

39:                                               ; preds = %6, %38
  ret i32 0, !dbg !363
}

; Function Attrs: nounwind
define dso_local i32 @count_return(i8* noundef %0) #0 section "pytrace/count_return" !dbg !364 {
  %2 = alloca i64, align 8
  %3 = alloca i64, align 8
  call void @llvm.dbg.value(metadata i8* %0, metadata !366, metadata !DIExpression()), !dbg !367
  call void @llvm.dbg.value(metadata i8* %0, metadata !279, metadata !DIExpression()) #4, !dbg !368
  %4 = load i64, i64* @wanted, align 8, !dbg !370, !tbaa !164
  %5 = icmp eq i64 %4, 0, !dbg !370
  br i1 %5, label %11, label %6, !dbg !372

6:                                                ; preds = %1
  %7 = tail call i64 inttoptr (i64 14 to i64 ()*)() #4, !dbg !373
  %8 = lshr i64 %7, 32, !dbg !374
  %9 = load i64, i64* @wanted, align 8, !dbg !375, !tbaa !164
  %10 = icmp eq i64 %8, %9, !dbg !376
  br i1 %10, label %11, label %39, !dbg !377

11:                                               ; preds = %6, %1
  %12 = tail call i32 inttoptr (i64 8 to i32 ()*)() #4, !dbg !378
  %13 = and i32 %12, 7, !dbg !380
  %14 = zext i32 %13 to i64, !dbg !381
  call void @llvm.dbg.value(metadata !DIArgList([8 x %struct.copy]* @hits, i64 %14), metadata !131, metadata !DIExpression(DW_OP_LLVM_arg, 0, DW_OP_LLVM_arg, 1, DW_OP_constu, 64, DW_OP_mul, DW_OP_plus, DW_OP_stack_value)) #4, !dbg !382
  %15 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %14, i32 1, !dbg !383
  %16 = load i64, i64* %15, align 8, !dbg !384, !tbaa !139
  %17 = add i64 %16, 1, !dbg !384
  store i64 %17, i64* %15, align 8, !dbg !384, !tbaa !139
  %18 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %14, i32 0, !dbg !385
  store i64 1, i64* %18, align 8, !dbg !386, !tbaa !146
  %19 = bitcast i64* %2 to i8*, !dbg !387
  call void @llvm.lifetime.start.p0i8(i64 8, i8* nonnull %19) #4, !dbg !387
  %20 = tail call i64 inttoptr (i64 174 to i64 (i8*)*)(i8* noundef %0) #4, !dbg !388
  call void @llvm.dbg.value(metadata i64 %20, metadata !282, metadata !DIExpression()) #4, !dbg !368
  store i64 %20, i64* %2, align 8, !dbg !389, !tbaa !164
  %21 = bitcast i64* %3 to i8*, !dbg !387
  call void @llvm.lifetime.start.p0i8(i64 8, i8* nonnull %21) #4, !dbg !387
  call void @llvm.dbg.value(metadata i64 1, metadata !283, metadata !DIExpression()) #4, !dbg !368
  store i64 1, i64* %3, align 8, !dbg !390, !tbaa !164
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !368
  %22 = call i8* inttoptr (i64 1 to i8* (i8*, i8*)*)(i8* noundef bitcast (%struct.anon.1* @percpu to i8*), i8* noundef nonnull %19) #4, !dbg !391
  %23 = bitcast i8* %22 to i64*, !dbg !391
  call void @llvm.dbg.value(metadata i64* %23, metadata !284, metadata !DIExpression()) #4, !dbg !368
  %24 = icmp eq i8* %22, null, !dbg !392
  br i1 %24, label %28, label %25, !dbg !393

25:                                               ; preds = %11
  %26 = load i64, i64* %23, align 8, !dbg !394, !tbaa !164
  %27 = add i64 %26, 1, !dbg !394
  store i64 %27, i64* %23, align 8, !dbg !394, !tbaa !164
  br label %30, !dbg !395

28:                                               ; preds = %11
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !368
  call void @llvm.dbg.value(metadata i64* %3, metadata !283, metadata !DIExpression(DW_OP_deref)) #4, !dbg !368
  %29 = call i64 inttoptr (i64 2 to i64 (i8*, i8*, i8*, i64)*)(i8* noundef bitcast (%struct.anon.1* @percpu to i8*), i8* noundef nonnull %19, i8* noundef nonnull %21, i64 noundef 0) #4, !dbg !396
  br label %30

30:                                               ; preds = %28, %25
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !368
  %31 = call i8* inttoptr (i64 1 to i8* (i8*, i8*)*)(i8* noundef bitcast (%struct.anon.0* @counts to i8*), i8* noundef nonnull %19) #4, !dbg !397
  call void @llvm.dbg.value(metadata i8* %31, metadata !284, metadata !DIExpression()) #4, !dbg !368
  %32 = icmp eq i8* %31, null, !dbg !398
  br i1 %32, label %36, label %33, !dbg !399

33:                                               ; preds = %30
  %34 = bitcast i8* %31 to i64*, !dbg !397
  call void @llvm.dbg.value(metadata i64* %34, metadata !284, metadata !DIExpression()) #4, !dbg !368
  %35 = atomicrmw add i64* %34, i64 1 seq_cst, align 8, !dbg !400
  br label %38, !dbg !400

36:                                               ; preds = %30
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !368
  call void @llvm.dbg.value(metadata i64* %3, metadata !283, metadata !DIExpression(DW_OP_deref)) #4, !dbg !368
  %37 = call i64 inttoptr (i64 2 to i64 (i8*, i8*, i8*, i64)*)(i8* noundef bitcast (%struct.anon.0* @counts to i8*), i8* noundef nonnull %19, i8* noundef nonnull %21, i64 noundef 0) #4, !dbg !401
  br label %38

38:                                               ; preds = %36, %33
  call void @llvm.lifetime.end.p0i8(i64 8, i8* nonnull %21) #4, !dbg !402
  call void @llvm.lifetime.end.p0i8(i64 8, i8* nonnull %19) #4, !dbg !402
  br label %39

39:                                               ; preds = %6, %38
  ret i32 0, !dbg !403
}

; Function Attrs: nounwind
define dso_local i32 @count_tracepoint(i8* noundef %0) #0 section "pytrace/count_tracepoint" !dbg !404 {
  %2 = alloca i64, align 8
  %3 = alloca i64, align 8
  call void @llvm.dbg.value(metadata i8* %0, metadata !406, metadata !DIExpression()), !dbg !407
  call void @llvm.dbg.value(metadata i8* %0, metadata !279, metadata !DIExpression()) #4, !dbg !408
  %4 = load i64, i64* @wanted, align 8, !dbg !410, !tbaa !164
  %5 = icmp eq i64 %4, 0, !dbg !410
  br i1 %5, label %11, label %6, !dbg !412

6:                                                ; preds = %1
  %7 = tail call i64 inttoptr (i64 14 to i64 ()*)() #4, !dbg !413
  %8 = lshr i64 %7, 32, !dbg !414
  %9 = load i64, i64* @wanted, align 8, !dbg !415, !tbaa !164
  %10 = icmp eq i64 %8, %9, !dbg !416
  br i1 %10, label %11, label %39, !dbg !417

11:                                               ; preds = %6, %1
  %12 = tail call i32 inttoptr (i64 8 to i32 ()*)() #4, !dbg !418
  %13 = and i32 %12, 7, !dbg !420
  %14 = zext i32 %13 to i64, !dbg !421
  call void @llvm.dbg.value(metadata !DIArgList([8 x %struct.copy]* @hits, i64 %14), metadata !131, metadata !DIExpression(DW_OP_LLVM_arg, 0, DW_OP_LLVM_arg, 1, DW_OP_constu, 64, DW_OP_mul, DW_OP_plus, DW_OP_stack_value)) #4, !dbg !422
  %15 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %14, i32 1, !dbg !423
  %16 = load i64, i64* %15, align 8, !dbg !424, !tbaa !139
  %17 = add i64 %16, 1, !dbg !424
  store i64 %17, i64* %15, align 8, !dbg !424, !tbaa !139
  %18 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %14, i32 0, !dbg !425
  store i64 1, i64* %18, align 8, !dbg !426, !tbaa !146
  %19 = bitcast i64* %2 to i8*, !dbg !427
  call void @llvm.lifetime.start.p0i8(i64 8, i8* nonnull %19) #4, !dbg !427
  %20 = tail call i64 inttoptr (i64 174 to i64 (i8*)*)(i8* noundef %0) #4, !dbg !428
  call void @llvm.dbg.value(metadata i64 %20, metadata !282, metadata !DIExpression()) #4, !dbg !408
  store i64 %20, i64* %2, align 8, !dbg !429, !tbaa !164
  %21 = bitcast i64* %3 to i8*, !dbg !427
  call void @llvm.lifetime.start.p0i8(i64 8, i8* nonnull %21) #4, !dbg !427
  call void @llvm.dbg.value(metadata i64 1, metadata !283, metadata !DIExpression()) #4, !dbg !408
  store i64 1, i64* %3, align 8, !dbg !430, !tbaa !164
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !408
  %22 = call i8* inttoptr (i64 1 to i8* (i8*, i8*)*)(i8* noundef bitcast (%struct.anon.1* @percpu to i8*), i8* noundef nonnull %19) #4, !dbg !431
  %23 = bitcast i8* %22 to i64*, !dbg !431
  call void @llvm.dbg.value(metadata i64* %23, metadata !284, metadata !DIExpression()) #4, !dbg !408
  %24 = icmp eq i8* %22, null, !dbg !432
  br i1 %24, label %28, label %25, !dbg !433

25:                                               ; preds = %11
  %26 = load i64, i64* %23, align 8, !dbg !434, !tbaa !164
  %27 = add i64 %26, 1, !dbg !434
  store i64 %27, i64* %23, align 8, !dbg !434, !tbaa !164
  br label %30, !dbg !435

28:                                               ; preds = %11
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !408
  call void @llvm.dbg.value(metadata i64* %3, metadata !283, metadata !DIExpression(DW_OP_deref)) #4, !dbg !408
  %29 = call i64 inttoptr (i64 2 to i64 (i8*, i8*, i8*, i64)*)(i8* noundef bitcast (%struct.anon.1* @percpu to i8*), i8* noundef nonnull %19, i8* noundef nonnull %21, i64 noundef 0) #4, !dbg !436
  br label %30

30:                                               ; preds = %28, %25
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !408
  %31 = call i8* inttoptr (i64 1 to i8* (i8*, i8*)*)(i8* noundef bitcast (%struct.anon.0* @counts to i8*), i8* noundef nonnull %19) #4, !dbg !437
  call void @llvm.dbg.value(metadata i8* %31, metadata !284, metadata !DIExpression()) #4, !dbg !408
  %32 = icmp eq i8* %31, null, !dbg !438
  br i1 %32, label %36, label %33, !dbg !439

33:                                               ; preds = %30
  %34 = bitcast i8* %31 to i64*, !dbg !437
  call void @llvm.dbg.value(metadata i64* %34, metadata !284, metadata !DIExpression()) #4, !dbg !408
  %35 = atomicrmw add i64* %34, i64 1 seq_cst, align 8, !dbg !440
  br label %38, !dbg !440

36:                                               ; preds = %30
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !408
  call void @llvm.dbg.value(metadata i64* %3, metadata !283, metadata !DIExpression(DW_OP_deref)) #4, !dbg !408
  %37 = call i64 inttoptr (i64 2 to i64 (i8*, i8*, i8*, i64)*)(i8* noundef bitcast (%struct.anon.0* @counts to i8*), i8* noundef nonnull %19, i8* noundef nonnull %21, i64 noundef 0) #4, !dbg !441
  br label %38

38:                                               ; preds = %36, %33
  call void @llvm.lifetime.end.p0i8(i64 8, i8* nonnull %21) #4, !dbg !442
  call void @llvm.lifetime.end.p0i8(i64 8, i8* nonnull %19) #4, !dbg !442
  br label %39

39:                                               ; preds = %6, %38
  ret i32 0, !dbg !443
}

; Function Attrs: nounwind
define dso_local i32 @count_perf(i8* noundef %0) #0 section "pytrace/count_perf" !dbg !444 {
  %2 = alloca i64, align 8
  %3 = alloca i64, align 8
  call void @llvm.dbg.value(metadata i8* %0, metadata !446, metadata !DIExpression()), !dbg !447
  call void @llvm.dbg.value(metadata i8* %0, metadata !279, metadata !DIExpression()) #4, !dbg !448
  %4 = load i64, i64* @wanted, align 8, !dbg !450, !tbaa !164
  %5 = icmp eq i64 %4, 0, !dbg !450
  br i1 %5, label %11, label %6, !dbg !452

6:                                                ; preds = %1
  %7 = tail call i64 inttoptr (i64 14 to i64 ()*)() #4, !dbg !453
  %8 = lshr i64 %7, 32, !dbg !454
  %9 = load i64, i64* @wanted, align 8, !dbg !455, !tbaa !164
  %10 = icmp eq i64 %8, %9, !dbg !456
  br i1 %10, label %11, label %39, !dbg !457

11:                                               ; preds = %6, %1
  %12 = tail call i32 inttoptr (i64 8 to i32 ()*)() #4, !dbg !458
  %13 = and i32 %12, 7, !dbg !460
  %14 = zext i32 %13 to i64, !dbg !461
  call void @llvm.dbg.value(metadata !DIArgList([8 x %struct.copy]* @hits, i64 %14), metadata !131, metadata !DIExpression(DW_OP_LLVM_arg, 0, DW_OP_LLVM_arg, 1, DW_OP_constu, 64, DW_OP_mul, DW_OP_plus, DW_OP_stack_value)) #4, !dbg !462
  %15 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %14, i32 1, !dbg !463
  %16 = load i64, i64* %15, align 8, !dbg !464, !tbaa !139
  %17 = add i64 %16, 1, !dbg !464
  store i64 %17, i64* %15, align 8, !dbg !464, !tbaa !139
  %18 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %14, i32 0, !dbg !465
  store i64 1, i64* %18, align 8, !dbg !466, !tbaa !146
  %19 = bitcast i64* %2 to i8*, !dbg !467
  call void @llvm.lifetime.start.p0i8(i64 8, i8* nonnull %19) #4, !dbg !467
  %20 = tail call i64 inttoptr (i64 174 to i64 (i8*)*)(i8* noundef %0) #4, !dbg !468
  call void @llvm.dbg.value(metadata i64 %20, metadata !282, metadata !DIExpression()) #4, !dbg !448
  store i64 %20, i64* %2, align 8, !dbg !469, !tbaa !164
  %21 = bitcast i64* %3 to i8*, !dbg !467
  call void @llvm.lifetime.start.p0i8(i64 8, i8* nonnull %21) #4, !dbg !467
  call void @llvm.dbg.value(metadata i64 1, metadata !283, metadata !DIExpression()) #4, !dbg !448
  store i64 1, i64* %3, align 8, !dbg !470, !tbaa !164
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !448
  %22 = call i8* inttoptr (i64 1 to i8* (i8*, i8*)*)(i8* noundef bitcast (%struct.anon.1* @percpu to i8*), i8* noundef nonnull %19) #4, !dbg !471
  %23 = bitcast i8* %22 to i64*, !dbg !471
  call void @llvm.dbg.value(metadata i64* %23, metadata !284, metadata !DIExpression()) #4, !dbg !448
  %24 = icmp eq i8* %22, null, !dbg !472
  br i1 %24, label %28, label %25, !dbg !473

25:                                               ; preds = %11
  %26 = load i64, i64* %23, align 8, !dbg !474, !tbaa !164
  %27 = add i64 %26, 1, !dbg !474
  store i64 %27, i64* %23, align 8, !dbg !474, !tbaa !164
  br label %30, !dbg !475

28:                                               ; preds = %11
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !448
  call void @llvm.dbg.value(metadata i64* %3, metadata !283, metadata !DIExpression(DW_OP_deref)) #4, !dbg !448
  %29 = call i64 inttoptr (i64 2 to i64 (i8*, i8*, i8*, i64)*)(i8* noundef bitcast (%struct.anon.1* @percpu to i8*), i8* noundef nonnull %19, i8* noundef nonnull %21, i64 noundef 0) #4, !dbg !476
  br label %30

30:                                               ; preds = %28, %25
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !448
  %31 = call i8* inttoptr (i64 1 to i8* (i8*, i8*)*)(i8* noundef bitcast (%struct.anon.0* @counts to i8*), i8* noundef nonnull %19) #4, !dbg !477
  call void @llvm.dbg.value(metadata i8* %31, metadata !284, metadata !DIExpression()) #4, !dbg !448
  %32 = icmp eq i8* %31, null, !dbg !478
  br i1 %32, label %36, label %33, !dbg !479

33:                                               ; preds = %30
  %34 = bitcast i8* %31 to i64*, !dbg !477
  call void @llvm.dbg.value(metadata i64* %34, metadata !284, metadata !DIExpression()) #4, !dbg !448
  %35 = atomicrmw add i64* %34, i64 1 seq_cst, align 8, !dbg !480
  br label %38, !dbg !480

36:                                               ; preds = %30
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !448
  call void @llvm.dbg.value(metadata i64* %3, metadata !283, metadata !DIExpression(DW_OP_deref)) #4, !dbg !448
  %37 = call i64 inttoptr (i64 2 to i64 (i8*, i8*, i8*, i64)*)(i8* noundef bitcast (%struct.anon.0* @counts to i8*), i8* noundef nonnull %19, i8* noundef nonnull %21, i64 noundef 0) #4, !dbg !481
  br label %38

38:                                               ; preds = %36, %33
  call void @llvm.lifetime.end.p0i8(i64 8, i8* nonnull %21) #4, !dbg !482
  call void @llvm.lifetime.end.p0i8(i64 8, i8* nonnull %19) #4, !dbg !482
  br label %39

39:                                               ; preds = %6, %38
  ret i32 0, !dbg !483
}

; Function Attrs: nounwind
define dso_local i32 @count_tracing(i8* noundef %0) #0 section "pytrace/count_tracing" !dbg !484 {
  %2 = alloca i64, align 8
  %3 = alloca i64, align 8
  call void @llvm.dbg.value(metadata i8* %0, metadata !486, metadata !DIExpression()), !dbg !487
  call void @llvm.dbg.value(metadata i8* %0, metadata !279, metadata !DIExpression()) #4, !dbg !488
  %4 = load i64, i64* @wanted, align 8, !dbg !490, !tbaa !164
  %5 = icmp eq i64 %4, 0, !dbg !490
  br i1 %5, label %11, label %6, !dbg !492

6:                                                ; preds = %1
  %7 = tail call i64 inttoptr (i64 14 to i64 ()*)() #4, !dbg !493
  %8 = lshr i64 %7, 32, !dbg !494
  %9 = load i64, i64* @wanted, align 8, !dbg !495, !tbaa !164
  %10 = icmp eq i64 %8, %9, !dbg !496
  br i1 %10, label %11, label %39, !dbg !497

11:                                               ; preds = %6, %1
  %12 = tail call i32 inttoptr (i64 8 to i32 ()*)() #4, !dbg !498
  %13 = and i32 %12, 7, !dbg !500
  %14 = zext i32 %13 to i64, !dbg !501
  call void @llvm.dbg.value(metadata !DIArgList([8 x %struct.copy]* @hits, i64 %14), metadata !131, metadata !DIExpression(DW_OP_LLVM_arg, 0, DW_OP_LLVM_arg, 1, DW_OP_constu, 64, DW_OP_mul, DW_OP_plus, DW_OP_stack_value)) #4, !dbg !502
  %15 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %14, i32 1, !dbg !503
  %16 = load i64, i64* %15, align 8, !dbg !504, !tbaa !139
  %17 = add i64 %16, 1, !dbg !504
  store i64 %17, i64* %15, align 8, !dbg !504, !tbaa !139
  %18 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %14, i32 0, !dbg !505
  store i64 1, i64* %18, align 8, !dbg !506, !tbaa !146
  %19 = bitcast i64* %2 to i8*, !dbg !507
  call void @llvm.lifetime.start.p0i8(i64 8, i8* nonnull %19) #4, !dbg !507
  %20 = tail call i64 inttoptr (i64 174 to i64 (i8*)*)(i8* noundef %0) #4, !dbg !508
  call void @llvm.dbg.value(metadata i64 %20, metadata !282, metadata !DIExpression()) #4, !dbg !488
  store i64 %20, i64* %2, align 8, !dbg !509, !tbaa !164
  %21 = bitcast i64* %3 to i8*, !dbg !507
  call void @llvm.lifetime.start.p0i8(i64 8, i8* nonnull %21) #4, !dbg !507
  call void @llvm.dbg.value(metadata i64 1, metadata !283, metadata !DIExpression()) #4, !dbg !488
  store i64 1, i64* %3, align 8, !dbg !510, !tbaa !164
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !488
  %22 = call i8* inttoptr (i64 1 to i8* (i8*, i8*)*)(i8* noundef bitcast (%struct.anon.1* @percpu to i8*), i8* noundef nonnull %19) #4, !dbg !511
  %23 = bitcast i8* %22 to i64*, !dbg !511
  call void @llvm.dbg.value(metadata i64* %23, metadata !284, metadata !DIExpression()) #4, !dbg !488
  %24 = icmp eq i8* %22, null, !dbg !512
  br i1 %24, label %28, label %25, !dbg !513

25:                                               ; preds = %11
  %26 = load i64, i64* %23, align 8, !dbg !514, !tbaa !164
  %27 = add i64 %26, 1, !dbg !514
  store i64 %27, i64* %23, align 8, !dbg !514, !tbaa !164
  br label %30, !dbg !515

28:                                               ; preds = %11
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !488
  call void @llvm.dbg.value(metadata i64* %3, metadata !283, metadata !DIExpression(DW_OP_deref)) #4, !dbg !488
  %29 = call i64 inttoptr (i64 2 to i64 (i8*, i8*, i8*, i64)*)(i8* noundef bitcast (%struct.anon.1* @percpu to i8*), i8* noundef nonnull %19, i8* noundef nonnull %21, i64 noundef 0) #4, !dbg !516
  br label %30

30:                                               ; preds = %28, %25
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !488
  %31 = call i8* inttoptr (i64 1 to i8* (i8*, i8*)*)(i8* noundef bitcast (%struct.anon.0* @counts to i8*), i8* noundef nonnull %19) #4, !dbg !517
  call void @llvm.dbg.value(metadata i8* %31, metadata !284, metadata !DIExpression()) #4, !dbg !488
  %32 = icmp eq i8* %31, null, !dbg !518
  br i1 %32, label %36, label %33, !dbg !519

33:                                               ; preds = %30
  %34 = bitcast i8* %31 to i64*, !dbg !517
  call void @llvm.dbg.value(metadata i64* %34, metadata !284, metadata !DIExpression()) #4, !dbg !488
  %35 = atomicrmw add i64* %34, i64 1 seq_cst, align 8, !dbg !520
  br label %38, !dbg !520

36:                                               ; preds = %30
  call void @llvm.dbg.value(metadata i64* %2, metadata !282, metadata !DIExpression(DW_OP_deref)) #4, !dbg !488
  call void @llvm.dbg.value(metadata i64* %3, metadata !283, metadata !DIExpression(DW_OP_deref)) #4, !dbg !488
  %37 = call i64 inttoptr (i64 2 to i64 (i8*, i8*, i8*, i64)*)(i8* noundef bitcast (%struct.anon.0* @counts to i8*), i8* noundef nonnull %19, i8* noundef nonnull %21, i64 noundef 0) #4, !dbg !521
  br label %38

38:                                               ; preds = %36, %33
  call void @llvm.lifetime.end.p0i8(i64 8, i8* nonnull %21) #4, !dbg !522
  call void @llvm.lifetime.end.p0i8(i64 8, i8* nonnull %19) #4, !dbg !522
  br label %39

39:                                               ; preds = %6, %38
  ret i32 0, !dbg !523
}

; Function Attrs: nounwind
define dso_local i32 @hit_tracing(i8* nocapture readnone %0) #0 section "pytrace/hit_tracing" !dbg !524 {
  call void @llvm.dbg.value(metadata i8* undef, metadata !526, metadata !DIExpression()), !dbg !527
  %2 = load i64, i64* @wanted, align 8, !dbg !528, !tbaa !164
  %3 = icmp eq i64 %2, 0, !dbg !528
  br i1 %3, label %9, label %4, !dbg !531

4:                                                ; preds = %1
  %5 = tail call i64 inttoptr (i64 14 to i64 ()*)() #4, !dbg !532
  %6 = lshr i64 %5, 32, !dbg !533
  %7 = load i64, i64* @wanted, align 8, !dbg !534, !tbaa !164
  %8 = icmp eq i64 %6, %7, !dbg !535
  br i1 %8, label %9, label %17, !dbg !536

9:                                                ; preds = %1, %4
  %10 = tail call i32 inttoptr (i64 8 to i32 ()*)() #4, !dbg !537
  %11 = and i32 %10, 7, !dbg !539
  %12 = zext i32 %11 to i64, !dbg !540
  call void @llvm.dbg.value(metadata !DIArgList([8 x %struct.copy]* @hits, i64 %12), metadata !131, metadata !DIExpression(DW_OP_LLVM_arg, 0, DW_OP_LLVM_arg, 1, DW_OP_constu, 64, DW_OP_mul, DW_OP_plus, DW_OP_stack_value)) #4, !dbg !541
  %13 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %12, i32 1, !dbg !542
  %14 = load i64, i64* %13, align 8, !dbg !543, !tbaa !139
  %15 = add i64 %14, 1, !dbg !543
  store i64 %15, i64* %13, align 8, !dbg !543, !tbaa !139
  %16 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %12, i32 0, !dbg !544
  store i64 1, i64* %16, align 8, !dbg !545, !tbaa !146
  br label %17, !dbg !546

17:                                               ; preds = %9, %4
  ret i32 0, !dbg !547
}

; Function Attrs: mustprogress nofree norecurse nounwind willreturn
define dso_local i32 @bad(i8* nocapture readnone %0) #1 section "pytrace/bad" !dbg !548 {
  call void @llvm.dbg.value(metadata i8* undef, metadata !550, metadata !DIExpression()), !dbg !551
  %2 = load volatile i32, i32* inttoptr (i64 4660 to i32*), align 4, !dbg !552, !tbaa !553
  ret i32 %2, !dbg !554
}

; Function Attrs: nounwind
define dso_local i32 @hit_iter(i64* nocapture readnone %0) #0 section "pytrace/hit_iter" !dbg !555 {
  call void @llvm.dbg.value(metadata i64* undef, metadata !559, metadata !DIExpression()), !dbg !560
  %2 = tail call i32 inttoptr (i64 8 to i32 ()*)() #4, !dbg !561
  %3 = and i32 %2, 7, !dbg !563
  %4 = zext i32 %3 to i64, !dbg !564
  call void @llvm.dbg.value(metadata !DIArgList([8 x %struct.copy]* @hits, i64 %4), metadata !131, metadata !DIExpression(DW_OP_LLVM_arg, 0, DW_OP_LLVM_arg, 1, DW_OP_constu, 64, DW_OP_mul, DW_OP_plus, DW_OP_stack_value)) #4, !dbg !565
  %5 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %4, i32 1, !dbg !566
  %6 = load i64, i64* %5, align 8, !dbg !567, !tbaa !139
  %7 = add i64 %6, 1, !dbg !567
  store i64 %7, i64* %5, align 8, !dbg !567, !tbaa !139
  %8 = getelementptr inbounds [8 x %struct.copy], [8 x %struct.copy]* @hits, i64 0, i64 %4, i32 0, !dbg !568
  store i64 1, i64* %8, align 8, !dbg !569, !tbaa !146
  ret i32 0, !dbg !570
}

; Function Attrs: argmemonly mustprogress nofree nosync nounwind willreturn
declare void @llvm.lifetime.start.p0i8(i64 immarg, i8* nocapture) #2

; Function Attrs: argmemonly mustprogress nofree nosync nounwind willreturn
declare void @llvm.lifetime.end.p0i8(i64 immarg, i8* nocapture) #2

; Function Attrs: nofree nosync nounwind readnone speculatable willreturn
declare void @llvm.dbg.value(metadata, metadata, metadata) #3

attributes #0 = { nounwind "frame-pointer"="all" "min-legal-vector-width"="0" "no-trapping-math"="true" "stack-protector-buffer-size"="8" }
attributes #1 = { mustprogress nofree norecurse nounwind willreturn "frame-pointer"="all" "min-legal-vector-width"="0" "no-trapping-math"="true" "stack-protector-buffer-size"="8" }
attributes #2 = { argmemonly mustprogress nofree nosync nounwind willreturn }
attributes #3 = { nofree nosync nounwind readnone speculatable willreturn }
attributes #4 = { nounwind }

!llvm.dbg.cu = !{!2}
!llvm.module.flags = !{!115, !116, !117, !118}
!llvm.ident = !{!119}

!0 = !DIGlobalVariableExpression(var: !1, expr: !DIExpression())
!1 = distinct !DIGlobalVariable(name: "wanted", scope: !2, file: !3, line: 20, type: !15, isLocal: false, isDefinition: true)
!2 = distinct !DICompileUnit(language: DW_LANG_C99, file: !3, producer: "Debian clang version 14.0.6", isOptimized: true, runtimeVersion: 0, emissionKind: FullDebug, retainedTypes: !4, globals: !8, splitDebugInlining: false, nameTableKind: None)
!3 = !DIFile(filename: "probes.c", directory: "/work/tests34/tests/support/objects", checksumkind: CSK_MD5, checksum: "d7650895a605f86be4bf6ca2e0c14fd2")
!4 = !{!5}
!5 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !6, size: 64)
!6 = !DIDerivedType(tag: DW_TAG_volatile_type, baseType: !7)
!7 = !DIBasicType(name: "int", size: 32, encoding: DW_ATE_signed)
!8 = !{!0, !9, !24, !29, !35, !49, !62, !74, !81, !87, !92, !97, !102, !109}
!9 = !DIGlobalVariableExpression(var: !10, expr: !DIExpression())
!10 = distinct !DIGlobalVariable(name: "hits", scope: !2, file: !3, line: 22, type: !11, isLocal: false, isDefinition: true)
!11 = !DICompositeType(tag: DW_TAG_array_type, baseType: !12, size: 4096, elements: !22)
!12 = distinct !DICompositeType(tag: DW_TAG_structure_type, name: "copy", file: !3, line: 21, size: 512, elements: !13)
!13 = !{!14, !17, !18}
!14 = !DIDerivedType(tag: DW_TAG_member, name: "written", scope: !12, file: !3, line: 21, baseType: !15, size: 64)
!15 = !DIDerivedType(tag: DW_TAG_typedef, name: "u64", file: !3, line: 3, baseType: !16)
!16 = !DIBasicType(name: "unsigned long long", size: 64, encoding: DW_ATE_unsigned)
!17 = !DIDerivedType(tag: DW_TAG_member, name: "value", scope: !12, file: !3, line: 21, baseType: !15, size: 64, offset: 64)
!18 = !DIDerivedType(tag: DW_TAG_member, name: "pad", scope: !12, file: !3, line: 21, baseType: !19, size: 384, offset: 128)
!19 = !DICompositeType(tag: DW_TAG_array_type, baseType: !15, size: 384, elements: !20)
!20 = !{!21}
!21 = !DISubrange(count: 6)
!22 = !{!23}
!23 = !DISubrange(count: 8)
!24 = !DIGlobalVariableExpression(var: !25, expr: !DIExpression())
!25 = distinct !DIGlobalVariable(name: "lost", scope: !2, file: !3, line: 23, type: !26, isLocal: false, isDefinition: true)
!26 = !DICompositeType(tag: DW_TAG_array_type, baseType: !15, size: 1024, elements: !27)
!27 = !{!23, !28}
!28 = !DISubrange(count: 2)
!29 = !DIGlobalVariableExpression(var: !30, expr: !DIExpression())
!30 = distinct !DIGlobalVariable(name: "_license", scope: !2, file: !3, line: 64, type: !31, isLocal: false, isDefinition: true)
!31 = !DICompositeType(tag: DW_TAG_array_type, baseType: !32, size: 32, elements: !33)
!32 = !DIBasicType(name: "char", size: 8, encoding: DW_ATE_signed_char)
!33 = !{!34}
!34 = !DISubrange(count: 4)
!35 = !DIGlobalVariableExpression(var: !36, expr: !DIExpression())
!36 = distinct !DIGlobalVariable(name: "events", scope: !2, file: !3, line: 16, type: !37, isLocal: false, isDefinition: true)
!37 = distinct !DICompositeType(tag: DW_TAG_structure_type, file: !3, line: 16, size: 128, elements: !38)
!38 = !{!39, !44}
!39 = !DIDerivedType(tag: DW_TAG_member, name: "type", scope: !37, file: !3, line: 16, baseType: !40, size: 64)
!40 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !41, size: 64)
!41 = !DICompositeType(tag: DW_TAG_array_type, baseType: !7, size: 864, elements: !42)
!42 = !{!43}
!43 = !DISubrange(count: 27)
!44 = !DIDerivedType(tag: DW_TAG_member, name: "max_entries", scope: !37, file: !3, line: 16, baseType: !45, size: 64, offset: 64)
!45 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !46, size: 64)
!46 = !DICompositeType(tag: DW_TAG_array_type, baseType: !7, size: 131072, elements: !47)
!47 = !{!48}
!48 = !DISubrange(count: 4096)
!49 = !DIGlobalVariableExpression(var: !50, expr: !DIExpression())
!50 = distinct !DIGlobalVariable(name: "counts", scope: !2, file: !3, line: 17, type: !51, isLocal: false, isDefinition: true)
!51 = distinct !DICompositeType(tag: DW_TAG_structure_type, file: !3, line: 17, size: 256, elements: !52)
!52 = !{!53, !58, !59, !61}
!53 = !DIDerivedType(tag: DW_TAG_member, name: "type", scope: !51, file: !3, line: 17, baseType: !54, size: 64)
!54 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !55, size: 64)
!55 = !DICompositeType(tag: DW_TAG_array_type, baseType: !7, size: 32, elements: !56)
!56 = !{!57}
!57 = !DISubrange(count: 1)
!58 = !DIDerivedType(tag: DW_TAG_member, name: "max_entries", scope: !51, file: !3, line: 17, baseType: !45, size: 64, offset: 64)
!59 = !DIDerivedType(tag: DW_TAG_member, name: "key", scope: !51, file: !3, line: 17, baseType: !60, size: 64, offset: 128)
!60 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !15, size: 64)
!61 = !DIDerivedType(tag: DW_TAG_member, name: "value", scope: !51, file: !3, line: 17, baseType: !60, size: 64, offset: 192)
!62 = !DIGlobalVariableExpression(var: !63, expr: !DIExpression())
!63 = distinct !DIGlobalVariable(name: "percpu", scope: !2, file: !3, line: 18, type: !64, isLocal: false, isDefinition: true)
!64 = distinct !DICompositeType(tag: DW_TAG_structure_type, file: !3, line: 18, size: 256, elements: !65)
!65 = !{!66, !71, !72, !73}
!66 = !DIDerivedType(tag: DW_TAG_member, name: "type", scope: !64, file: !3, line: 18, baseType: !67, size: 64)
!67 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !68, size: 64)
!68 = !DICompositeType(tag: DW_TAG_array_type, baseType: !7, size: 160, elements: !69)
!69 = !{!70}
!70 = !DISubrange(count: 5)
!71 = !DIDerivedType(tag: DW_TAG_member, name: "max_entries", scope: !64, file: !3, line: 18, baseType: !45, size: 64, offset: 64)
!72 = !DIDerivedType(tag: DW_TAG_member, name: "key", scope: !64, file: !3, line: 18, baseType: !60, size: 64, offset: 128)
!73 = !DIDerivedType(tag: DW_TAG_member, name: "value", scope: !64, file: !3, line: 18, baseType: !60, size: 64, offset: 192)
!74 = !DIGlobalVariableExpression(var: !75, expr: !DIExpression())
!75 = distinct !DIGlobalVariable(name: "bpf_get_smp_processor_id", scope: !2, file: !3, line: 12, type: !76, isLocal: true, isDefinition: true)
!76 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !77, size: 64)
!77 = !DISubroutineType(types: !78)
!78 = !{!79}
!79 = !DIDerivedType(tag: DW_TAG_typedef, name: "u32", file: !3, line: 3, baseType: !80)
!80 = !DIBasicType(name: "unsigned int", size: 32, encoding: DW_ATE_unsigned)
!81 = !DIGlobalVariableExpression(var: !82, expr: !DIExpression())
!82 = distinct !DIGlobalVariable(name: "bpf_ringbuf_reserve", scope: !2, file: !3, line: 13, type: !83, isLocal: true, isDefinition: true)
!83 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !84, size: 64)
!84 = !DISubroutineType(types: !85)
!85 = !{!86, !86, !15, !15}
!86 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: null, size: 64)
!87 = !DIGlobalVariableExpression(var: !88, expr: !DIExpression())
!88 = distinct !DIGlobalVariable(name: "bpf_get_current_pid_tgid", scope: !2, file: !3, line: 9, type: !89, isLocal: true, isDefinition: true)
!89 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !90, size: 64)
!90 = !DISubroutineType(types: !91)
!91 = !{!15}
!92 = !DIGlobalVariableExpression(var: !93, expr: !DIExpression())
!93 = distinct !DIGlobalVariable(name: "bpf_ringbuf_submit", scope: !2, file: !3, line: 14, type: !94, isLocal: true, isDefinition: true)
!94 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !95, size: 64)
!95 = !DISubroutineType(types: !96)
!96 = !{null, !86, !15}
!97 = !DIGlobalVariableExpression(var: !98, expr: !DIExpression())
!98 = distinct !DIGlobalVariable(name: "bpf_get_attach_cookie", scope: !2, file: !3, line: 10, type: !99, isLocal: true, isDefinition: true)
!99 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !100, size: 64)
!100 = !DISubroutineType(types: !101)
!101 = !{!15, !86}
!102 = !DIGlobalVariableExpression(var: !103, expr: !DIExpression())
!103 = distinct !DIGlobalVariable(name: "bpf_map_lookup_elem", scope: !2, file: !3, line: 7, type: !104, isLocal: true, isDefinition: true)
!104 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !105, size: 64)
!105 = !DISubroutineType(types: !106)
!106 = !{!86, !86, !107}
!107 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !108, size: 64)
!108 = !DIDerivedType(tag: DW_TAG_const_type, baseType: null)
!109 = !DIGlobalVariableExpression(var: !110, expr: !DIExpression())
!110 = distinct !DIGlobalVariable(name: "bpf_map_update_elem", scope: !2, file: !3, line: 8, type: !111, isLocal: true, isDefinition: true)
!111 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !112, size: 64)
!112 = !DISubroutineType(types: !113)
!113 = !{!114, !86, !107, !107, !15}
!114 = !DIBasicType(name: "long", size: 64, encoding: DW_ATE_signed)
!115 = !{i32 7, !"Dwarf Version", i32 5}
!116 = !{i32 2, !"Debug Info Version", i32 3}
!117 = !{i32 1, !"wchar_size", i32 4}
!118 = !{i32 7, !"frame-pointer", i32 2}
!119 = !{!"Debian clang version 14.0.6"}
!120 = distinct !DISubprogram(name: "begin_0", scope: !3, file: !3, line: 28, type: !121, scopeLine: 28, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !2, retainedNodes: !123)
!121 = !DISubroutineType(types: !122)
!122 = !{!7, !86}
!123 = !{!124}
!124 = !DILocalVariable(name: "ctx", arg: 1, scope: !120, file: !3, line: 28, type: !86)
!125 = !DILocation(line: 0, scope: !120)
!126 = !DILocation(line: 26, column: 55, scope: !127, inlinedAt: !133)
!127 = distinct !DISubprogram(name: "hit", scope: !3, file: !3, line: 26, type: !128, scopeLine: 26, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagLocalToUnit | DISPFlagDefinition | DISPFlagOptimized, unit: !2, retainedNodes: !130)
!128 = !DISubroutineType(types: !129)
!129 = !{null}
!130 = !{!131}
!131 = !DILocalVariable(name: "c", scope: !127, file: !3, line: 26, type: !132)
!132 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !12, size: 64)
!133 = distinct !DILocation(line: 28, column: 49, scope: !120)
!134 = !DILocation(line: 26, column: 82, scope: !127, inlinedAt: !133)
!135 = !DILocation(line: 26, column: 50, scope: !127, inlinedAt: !133)
!136 = !DILocation(line: 0, scope: !127, inlinedAt: !133)
!137 = !DILocation(line: 26, column: 91, scope: !127, inlinedAt: !133)
!138 = !DILocation(line: 26, column: 96, scope: !127, inlinedAt: !133)
!139 = !{!140, !141, i64 8}
!140 = !{!"copy", !141, i64 0, !141, i64 8, !142, i64 16}
!141 = !{!"long long", !142, i64 0}
!142 = !{!"omnipotent char", !143, i64 0}
!143 = !{!"Simple C/C++ TBAA"}
!144 = !DILocation(line: 26, column: 103, scope: !127, inlinedAt: !133)
!145 = !DILocation(line: 26, column: 111, scope: !127, inlinedAt: !133)
!146 = !{!140, !141, i64 0}
!147 = !DILocation(line: 28, column: 56, scope: !120)
!148 = distinct !DISubprogram(name: "event_kprobe", scope: !3, file: !3, line: 51, type: !121, scopeLine: 51, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !2, retainedNodes: !149)
!149 = !{!150}
!150 = !DILocalVariable(name: "ctx", arg: 1, scope: !148, file: !3, line: 51, type: !86)
!151 = !DILocation(line: 0, scope: !148)
!152 = !DILocalVariable(name: "ctx", arg: 1, scope: !153, file: !3, line: 40, type: !86)
!153 = distinct !DISubprogram(name: "event", scope: !3, file: !3, line: 40, type: !121, scopeLine: 40, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagLocalToUnit | DISPFlagDefinition | DISPFlagOptimized, unit: !2, retainedNodes: !154)
!154 = !{!152}
!155 = !DILocation(line: 0, scope: !153, inlinedAt: !156)
!156 = distinct !DILocation(line: 51, column: 66, scope: !148)
!157 = !DILocation(line: 25, column: 40, scope: !158, inlinedAt: !162)
!158 = distinct !DISubprogram(name: "other", scope: !3, file: !3, line: 25, type: !159, scopeLine: 25, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagLocalToUnit | DISPFlagDefinition | DISPFlagOptimized, unit: !2, retainedNodes: !161)
!159 = !DISubroutineType(types: !160)
!160 = !{!7}
!161 = !{}
!162 = distinct !DILocation(line: 40, column: 42, scope: !163, inlinedAt: !156)
!163 = distinct !DILexicalBlock(scope: !153, file: !3, line: 40, column: 42)
!164 = !{!141, !141, i64 0}
!165 = !DILocation(line: 25, column: 47, scope: !158, inlinedAt: !162)
!166 = !DILocation(line: 25, column: 51, scope: !158, inlinedAt: !162)
!167 = !DILocation(line: 25, column: 78, scope: !158, inlinedAt: !162)
!168 = !DILocation(line: 25, column: 88, scope: !158, inlinedAt: !162)
!169 = !DILocation(line: 25, column: 85, scope: !158, inlinedAt: !162)
!170 = !DILocation(line: 40, column: 42, scope: !153, inlinedAt: !156)
!171 = !DILocation(line: 26, column: 55, scope: !127, inlinedAt: !172)
!172 = distinct !DILocation(line: 40, column: 61, scope: !153, inlinedAt: !156)
!173 = !DILocation(line: 26, column: 82, scope: !127, inlinedAt: !172)
!174 = !DILocation(line: 26, column: 50, scope: !127, inlinedAt: !172)
!175 = !DILocation(line: 0, scope: !127, inlinedAt: !172)
!176 = !DILocation(line: 26, column: 91, scope: !127, inlinedAt: !172)
!177 = !DILocation(line: 26, column: 96, scope: !127, inlinedAt: !172)
!178 = !DILocation(line: 26, column: 103, scope: !127, inlinedAt: !172)
!179 = !DILocation(line: 26, column: 111, scope: !127, inlinedAt: !172)
!180 = !DILocation(line: 40, column: 80, scope: !153, inlinedAt: !156)
!181 = !DILocalVariable(name: "cookie", arg: 1, scope: !182, file: !3, line: 32, type: !15)
!182 = distinct !DISubprogram(name: "send", scope: !3, file: !3, line: 32, type: !183, scopeLine: 32, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagLocalToUnit | DISPFlagDefinition | DISPFlagOptimized, unit: !2, retainedNodes: !185)
!183 = !DISubroutineType(types: !184)
!184 = !{!7, !15}
!185 = !{!181, !186, !195}
!186 = !DILocalVariable(name: "e", scope: !182, file: !3, line: 33, type: !187)
!187 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !188, size: 64)
!188 = distinct !DICompositeType(tag: DW_TAG_structure_type, name: "event", file: !3, line: 31, size: 256, elements: !189)
!189 = !{!190, !191, !192, !193, !194}
!190 = !DIDerivedType(tag: DW_TAG_member, name: "id", scope: !188, file: !3, line: 31, baseType: !79, size: 32)
!191 = !DIDerivedType(tag: DW_TAG_member, name: "tail", scope: !188, file: !3, line: 31, baseType: !79, size: 32, offset: 32)
!192 = !DIDerivedType(tag: DW_TAG_member, name: "a", scope: !188, file: !3, line: 31, baseType: !15, size: 64, offset: 64)
!193 = !DIDerivedType(tag: DW_TAG_member, name: "b", scope: !188, file: !3, line: 31, baseType: !15, size: 64, offset: 128)
!194 = !DIDerivedType(tag: DW_TAG_member, name: "c", scope: !188, file: !3, line: 31, baseType: !15, size: 64, offset: 192)
!195 = !DILocalVariable(name: "c", scope: !182, file: !3, line: 35, type: !132)
!196 = !DILocation(line: 0, scope: !182, inlinedAt: !197)
!197 = distinct !DILocation(line: 40, column: 75, scope: !153, inlinedAt: !156)
!198 = !DILocation(line: 33, column: 20, scope: !182, inlinedAt: !197)
!199 = !DILocation(line: 34, column: 7, scope: !200, inlinedAt: !197)
!200 = distinct !DILexicalBlock(scope: !182, file: !3, line: 34, column: 6)
!201 = !DILocation(line: 34, column: 6, scope: !182, inlinedAt: !197)
!202 = !DILocation(line: 34, column: 12, scope: !203, inlinedAt: !197)
!203 = distinct !DILexicalBlock(scope: !200, file: !3, line: 34, column: 10)
!204 = !DILocation(line: 34, column: 51, scope: !203, inlinedAt: !197)
!205 = !DILocation(line: 34, column: 55, scope: !203, inlinedAt: !197)
!206 = !DILocation(line: 36, column: 5, scope: !182, inlinedAt: !197)
!207 = !DILocation(line: 36, column: 8, scope: !182, inlinedAt: !197)
!208 = !{!209, !210, i64 0}
!209 = !{!"event", !210, i64 0, !210, i64 4, !141, i64 8, !141, i64 16, !141, i64 24}
!210 = !{!"int", !142, i64 0}
!211 = !DILocation(line: 36, column: 16, scope: !182, inlinedAt: !197)
!212 = !DILocation(line: 36, column: 21, scope: !182, inlinedAt: !197)
!213 = !{!209, !210, i64 4}
!214 = !DILocation(line: 36, column: 36, scope: !182, inlinedAt: !197)
!215 = !DILocation(line: 36, column: 29, scope: !182, inlinedAt: !197)
!216 = !DILocation(line: 36, column: 31, scope: !182, inlinedAt: !197)
!217 = !{!209, !141, i64 8}
!218 = !DILocation(line: 36, column: 50, scope: !182, inlinedAt: !197)
!219 = !DILocation(line: 36, column: 77, scope: !182, inlinedAt: !197)
!220 = !DILocation(line: 36, column: 46, scope: !182, inlinedAt: !197)
!221 = !DILocation(line: 36, column: 48, scope: !182, inlinedAt: !197)
!222 = !{!209, !141, i64 16}
!223 = !DILocation(line: 36, column: 87, scope: !182, inlinedAt: !197)
!224 = !DILocation(line: 36, column: 89, scope: !182, inlinedAt: !197)
!225 = !{!209, !141, i64 24}
!226 = !DILocation(line: 37, column: 2, scope: !182, inlinedAt: !197)
!227 = !DILocation(line: 51, column: 59, scope: !148)
!228 = distinct !DISubprogram(name: "event_tracepoint", scope: !3, file: !3, line: 52, type: !121, scopeLine: 52, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !2, retainedNodes: !229)
!229 = !{!230}
!230 = !DILocalVariable(name: "ctx", arg: 1, scope: !228, file: !3, line: 52, type: !86)
!231 = !DILocation(line: 0, scope: !228)
!232 = !DILocation(line: 0, scope: !153, inlinedAt: !233)
!233 = distinct !DILocation(line: 52, column: 74, scope: !228)
!234 = !DILocation(line: 25, column: 40, scope: !158, inlinedAt: !235)
!235 = distinct !DILocation(line: 40, column: 42, scope: !163, inlinedAt: !233)
!236 = !DILocation(line: 25, column: 47, scope: !158, inlinedAt: !235)
!237 = !DILocation(line: 25, column: 51, scope: !158, inlinedAt: !235)
!238 = !DILocation(line: 25, column: 78, scope: !158, inlinedAt: !235)
!239 = !DILocation(line: 25, column: 88, scope: !158, inlinedAt: !235)
!240 = !DILocation(line: 25, column: 85, scope: !158, inlinedAt: !235)
!241 = !DILocation(line: 40, column: 42, scope: !153, inlinedAt: !233)
!242 = !DILocation(line: 26, column: 55, scope: !127, inlinedAt: !243)
!243 = distinct !DILocation(line: 40, column: 61, scope: !153, inlinedAt: !233)
!244 = !DILocation(line: 26, column: 82, scope: !127, inlinedAt: !243)
!245 = !DILocation(line: 26, column: 50, scope: !127, inlinedAt: !243)
!246 = !DILocation(line: 0, scope: !127, inlinedAt: !243)
!247 = !DILocation(line: 26, column: 91, scope: !127, inlinedAt: !243)
!248 = !DILocation(line: 26, column: 96, scope: !127, inlinedAt: !243)
!249 = !DILocation(line: 26, column: 103, scope: !127, inlinedAt: !243)
!250 = !DILocation(line: 26, column: 111, scope: !127, inlinedAt: !243)
!251 = !DILocation(line: 40, column: 80, scope: !153, inlinedAt: !233)
!252 = !DILocation(line: 0, scope: !182, inlinedAt: !253)
!253 = distinct !DILocation(line: 40, column: 75, scope: !153, inlinedAt: !233)
!254 = !DILocation(line: 33, column: 20, scope: !182, inlinedAt: !253)
!255 = !DILocation(line: 34, column: 7, scope: !200, inlinedAt: !253)
!256 = !DILocation(line: 34, column: 6, scope: !182, inlinedAt: !253)
!257 = !DILocation(line: 34, column: 12, scope: !203, inlinedAt: !253)
!258 = !DILocation(line: 34, column: 51, scope: !203, inlinedAt: !253)
!259 = !DILocation(line: 34, column: 55, scope: !203, inlinedAt: !253)
!260 = !DILocation(line: 36, column: 5, scope: !182, inlinedAt: !253)
!261 = !DILocation(line: 36, column: 8, scope: !182, inlinedAt: !253)
!262 = !DILocation(line: 36, column: 16, scope: !182, inlinedAt: !253)
!263 = !DILocation(line: 36, column: 21, scope: !182, inlinedAt: !253)
!264 = !DILocation(line: 36, column: 36, scope: !182, inlinedAt: !253)
!265 = !DILocation(line: 36, column: 29, scope: !182, inlinedAt: !253)
!266 = !DILocation(line: 36, column: 31, scope: !182, inlinedAt: !253)
!267 = !DILocation(line: 36, column: 50, scope: !182, inlinedAt: !253)
!268 = !DILocation(line: 36, column: 77, scope: !182, inlinedAt: !253)
!269 = !DILocation(line: 36, column: 46, scope: !182, inlinedAt: !253)
!270 = !DILocation(line: 36, column: 48, scope: !182, inlinedAt: !253)
!271 = !DILocation(line: 36, column: 87, scope: !182, inlinedAt: !253)
!272 = !DILocation(line: 36, column: 89, scope: !182, inlinedAt: !253)
!273 = !DILocation(line: 37, column: 2, scope: !182, inlinedAt: !253)
!274 = !DILocation(line: 52, column: 67, scope: !228)
!275 = distinct !DISubprogram(name: "count_kprobe", scope: !3, file: !3, line: 53, type: !121, scopeLine: 53, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !2, retainedNodes: !276)
!276 = !{!277}
!277 = !DILocalVariable(name: "ctx", arg: 1, scope: !275, file: !3, line: 53, type: !86)
!278 = !DILocation(line: 0, scope: !275)
!279 = !DILocalVariable(name: "ctx", arg: 1, scope: !280, file: !3, line: 41, type: !86)
!280 = distinct !DISubprogram(name: "count", scope: !3, file: !3, line: 41, type: !121, scopeLine: 41, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagLocalToUnit | DISPFlagDefinition | DISPFlagOptimized, unit: !2, retainedNodes: !281)
!281 = !{!279, !282, !283, !284}
!282 = !DILocalVariable(name: "key", scope: !280, file: !3, line: 44, type: !15)
!283 = !DILocalVariable(name: "one", scope: !280, file: !3, line: 44, type: !15)
!284 = !DILocalVariable(name: "v", scope: !280, file: !3, line: 45, type: !60)
!285 = !DILocation(line: 0, scope: !280, inlinedAt: !286)
!286 = distinct !DILocation(line: 53, column: 66, scope: !275)
!287 = !DILocation(line: 25, column: 40, scope: !158, inlinedAt: !288)
!288 = distinct !DILocation(line: 42, column: 6, scope: !289, inlinedAt: !286)
!289 = distinct !DILexicalBlock(scope: !280, file: !3, line: 42, column: 6)
!290 = !DILocation(line: 25, column: 47, scope: !158, inlinedAt: !288)
!291 = !DILocation(line: 25, column: 51, scope: !158, inlinedAt: !288)
!292 = !DILocation(line: 25, column: 78, scope: !158, inlinedAt: !288)
!293 = !DILocation(line: 25, column: 88, scope: !158, inlinedAt: !288)
!294 = !DILocation(line: 25, column: 85, scope: !158, inlinedAt: !288)
!295 = !DILocation(line: 42, column: 6, scope: !280, inlinedAt: !286)
!296 = !DILocation(line: 26, column: 55, scope: !127, inlinedAt: !297)
!297 = distinct !DILocation(line: 43, column: 2, scope: !280, inlinedAt: !286)
!298 = !DILocation(line: 26, column: 82, scope: !127, inlinedAt: !297)
!299 = !DILocation(line: 26, column: 50, scope: !127, inlinedAt: !297)
!300 = !DILocation(line: 0, scope: !127, inlinedAt: !297)
!301 = !DILocation(line: 26, column: 91, scope: !127, inlinedAt: !297)
!302 = !DILocation(line: 26, column: 96, scope: !127, inlinedAt: !297)
!303 = !DILocation(line: 26, column: 103, scope: !127, inlinedAt: !297)
!304 = !DILocation(line: 26, column: 111, scope: !127, inlinedAt: !297)
!305 = !DILocation(line: 44, column: 2, scope: !280, inlinedAt: !286)
!306 = !DILocation(line: 44, column: 12, scope: !280, inlinedAt: !286)
!307 = !DILocation(line: 44, column: 6, scope: !280, inlinedAt: !286)
!308 = !DILocation(line: 44, column: 40, scope: !280, inlinedAt: !286)
!309 = !DILocation(line: 45, column: 11, scope: !280, inlinedAt: !286)
!310 = !DILocation(line: 46, column: 6, scope: !311, inlinedAt: !286)
!311 = distinct !DILexicalBlock(scope: !280, file: !3, line: 46, column: 6)
!312 = !DILocation(line: 46, column: 6, scope: !280, inlinedAt: !286)
!313 = !DILocation(line: 46, column: 13, scope: !311, inlinedAt: !286)
!314 = !DILocation(line: 46, column: 9, scope: !311, inlinedAt: !286)
!315 = !DILocation(line: 46, column: 22, scope: !311, inlinedAt: !286)
!316 = !DILocation(line: 47, column: 6, scope: !280, inlinedAt: !286)
!317 = !DILocation(line: 48, column: 6, scope: !318, inlinedAt: !286)
!318 = distinct !DILexicalBlock(scope: !280, file: !3, line: 48, column: 6)
!319 = !DILocation(line: 48, column: 6, scope: !280, inlinedAt: !286)
!320 = !DILocation(line: 48, column: 9, scope: !318, inlinedAt: !286)
!321 = !DILocation(line: 48, column: 42, scope: !318, inlinedAt: !286)
!322 = !DILocation(line: 50, column: 1, scope: !280, inlinedAt: !286)
!323 = !DILocation(line: 53, column: 59, scope: !275)
!324 = distinct !DISubprogram(name: "count_multi", scope: !3, file: !3, line: 54, type: !121, scopeLine: 54, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !2, retainedNodes: !325)
!325 = !{!326}
!326 = !DILocalVariable(name: "ctx", arg: 1, scope: !324, file: !3, line: 54, type: !86)
!327 = !DILocation(line: 0, scope: !324)
!328 = !DILocation(line: 0, scope: !280, inlinedAt: !329)
!329 = distinct !DILocation(line: 54, column: 64, scope: !324)
!330 = !DILocation(line: 25, column: 40, scope: !158, inlinedAt: !331)
!331 = distinct !DILocation(line: 42, column: 6, scope: !289, inlinedAt: !329)
!332 = !DILocation(line: 25, column: 47, scope: !158, inlinedAt: !331)
!333 = !DILocation(line: 25, column: 51, scope: !158, inlinedAt: !331)
!334 = !DILocation(line: 25, column: 78, scope: !158, inlinedAt: !331)
!335 = !DILocation(line: 25, column: 88, scope: !158, inlinedAt: !331)
!336 = !DILocation(line: 25, column: 85, scope: !158, inlinedAt: !331)
!337 = !DILocation(line: 42, column: 6, scope: !280, inlinedAt: !329)
!338 = !DILocation(line: 26, column: 55, scope: !127, inlinedAt: !339)
!339 = distinct !DILocation(line: 43, column: 2, scope: !280, inlinedAt: !329)
!340 = !DILocation(line: 26, column: 82, scope: !127, inlinedAt: !339)
!341 = !DILocation(line: 26, column: 50, scope: !127, inlinedAt: !339)
!342 = !DILocation(line: 0, scope: !127, inlinedAt: !339)
!343 = !DILocation(line: 26, column: 91, scope: !127, inlinedAt: !339)
!344 = !DILocation(line: 26, column: 96, scope: !127, inlinedAt: !339)
!345 = !DILocation(line: 26, column: 103, scope: !127, inlinedAt: !339)
!346 = !DILocation(line: 26, column: 111, scope: !127, inlinedAt: !339)
!347 = !DILocation(line: 44, column: 2, scope: !280, inlinedAt: !329)
!348 = !DILocation(line: 44, column: 12, scope: !280, inlinedAt: !329)
!349 = !DILocation(line: 44, column: 6, scope: !280, inlinedAt: !329)
!350 = !DILocation(line: 44, column: 40, scope: !280, inlinedAt: !329)
!351 = !DILocation(line: 45, column: 11, scope: !280, inlinedAt: !329)
!352 = !DILocation(line: 46, column: 6, scope: !311, inlinedAt: !329)
!353 = !DILocation(line: 46, column: 6, scope: !280, inlinedAt: !329)
!354 = !DILocation(line: 46, column: 13, scope: !311, inlinedAt: !329)
!355 = !DILocation(line: 46, column: 9, scope: !311, inlinedAt: !329)
!356 = !DILocation(line: 46, column: 22, scope: !311, inlinedAt: !329)
!357 = !DILocation(line: 47, column: 6, scope: !280, inlinedAt: !329)
!358 = !DILocation(line: 48, column: 6, scope: !318, inlinedAt: !329)
!359 = !DILocation(line: 48, column: 6, scope: !280, inlinedAt: !329)
!360 = !DILocation(line: 48, column: 9, scope: !318, inlinedAt: !329)
!361 = !DILocation(line: 48, column: 42, scope: !318, inlinedAt: !329)
!362 = !DILocation(line: 50, column: 1, scope: !280, inlinedAt: !329)
!363 = !DILocation(line: 54, column: 57, scope: !324)
!364 = distinct !DISubprogram(name: "count_return", scope: !3, file: !3, line: 55, type: !121, scopeLine: 55, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !2, retainedNodes: !365)
!365 = !{!366}
!366 = !DILocalVariable(name: "ctx", arg: 1, scope: !364, file: !3, line: 55, type: !86)
!367 = !DILocation(line: 0, scope: !364)
!368 = !DILocation(line: 0, scope: !280, inlinedAt: !369)
!369 = distinct !DILocation(line: 55, column: 66, scope: !364)
!370 = !DILocation(line: 25, column: 40, scope: !158, inlinedAt: !371)
!371 = distinct !DILocation(line: 42, column: 6, scope: !289, inlinedAt: !369)
!372 = !DILocation(line: 25, column: 47, scope: !158, inlinedAt: !371)
!373 = !DILocation(line: 25, column: 51, scope: !158, inlinedAt: !371)
!374 = !DILocation(line: 25, column: 78, scope: !158, inlinedAt: !371)
!375 = !DILocation(line: 25, column: 88, scope: !158, inlinedAt: !371)
!376 = !DILocation(line: 25, column: 85, scope: !158, inlinedAt: !371)
!377 = !DILocation(line: 42, column: 6, scope: !280, inlinedAt: !369)
!378 = !DILocation(line: 26, column: 55, scope: !127, inlinedAt: !379)
!379 = distinct !DILocation(line: 43, column: 2, scope: !280, inlinedAt: !369)
!380 = !DILocation(line: 26, column: 82, scope: !127, inlinedAt: !379)
!381 = !DILocation(line: 26, column: 50, scope: !127, inlinedAt: !379)
!382 = !DILocation(line: 0, scope: !127, inlinedAt: !379)
!383 = !DILocation(line: 26, column: 91, scope: !127, inlinedAt: !379)
!384 = !DILocation(line: 26, column: 96, scope: !127, inlinedAt: !379)
!385 = !DILocation(line: 26, column: 103, scope: !127, inlinedAt: !379)
!386 = !DILocation(line: 26, column: 111, scope: !127, inlinedAt: !379)
!387 = !DILocation(line: 44, column: 2, scope: !280, inlinedAt: !369)
!388 = !DILocation(line: 44, column: 12, scope: !280, inlinedAt: !369)
!389 = !DILocation(line: 44, column: 6, scope: !280, inlinedAt: !369)
!390 = !DILocation(line: 44, column: 40, scope: !280, inlinedAt: !369)
!391 = !DILocation(line: 45, column: 11, scope: !280, inlinedAt: !369)
!392 = !DILocation(line: 46, column: 6, scope: !311, inlinedAt: !369)
!393 = !DILocation(line: 46, column: 6, scope: !280, inlinedAt: !369)
!394 = !DILocation(line: 46, column: 13, scope: !311, inlinedAt: !369)
!395 = !DILocation(line: 46, column: 9, scope: !311, inlinedAt: !369)
!396 = !DILocation(line: 46, column: 22, scope: !311, inlinedAt: !369)
!397 = !DILocation(line: 47, column: 6, scope: !280, inlinedAt: !369)
!398 = !DILocation(line: 48, column: 6, scope: !318, inlinedAt: !369)
!399 = !DILocation(line: 48, column: 6, scope: !280, inlinedAt: !369)
!400 = !DILocation(line: 48, column: 9, scope: !318, inlinedAt: !369)
!401 = !DILocation(line: 48, column: 42, scope: !318, inlinedAt: !369)
!402 = !DILocation(line: 50, column: 1, scope: !280, inlinedAt: !369)
!403 = !DILocation(line: 55, column: 59, scope: !364)
!404 = distinct !DISubprogram(name: "count_tracepoint", scope: !3, file: !3, line: 56, type: !121, scopeLine: 56, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !2, retainedNodes: !405)
!405 = !{!406}
!406 = !DILocalVariable(name: "ctx", arg: 1, scope: !404, file: !3, line: 56, type: !86)
!407 = !DILocation(line: 0, scope: !404)
!408 = !DILocation(line: 0, scope: !280, inlinedAt: !409)
!409 = distinct !DILocation(line: 56, column: 74, scope: !404)
!410 = !DILocation(line: 25, column: 40, scope: !158, inlinedAt: !411)
!411 = distinct !DILocation(line: 42, column: 6, scope: !289, inlinedAt: !409)
!412 = !DILocation(line: 25, column: 47, scope: !158, inlinedAt: !411)
!413 = !DILocation(line: 25, column: 51, scope: !158, inlinedAt: !411)
!414 = !DILocation(line: 25, column: 78, scope: !158, inlinedAt: !411)
!415 = !DILocation(line: 25, column: 88, scope: !158, inlinedAt: !411)
!416 = !DILocation(line: 25, column: 85, scope: !158, inlinedAt: !411)
!417 = !DILocation(line: 42, column: 6, scope: !280, inlinedAt: !409)
!418 = !DILocation(line: 26, column: 55, scope: !127, inlinedAt: !419)
!419 = distinct !DILocation(line: 43, column: 2, scope: !280, inlinedAt: !409)
!420 = !DILocation(line: 26, column: 82, scope: !127, inlinedAt: !419)
!421 = !DILocation(line: 26, column: 50, scope: !127, inlinedAt: !419)
!422 = !DILocation(line: 0, scope: !127, inlinedAt: !419)
!423 = !DILocation(line: 26, column: 91, scope: !127, inlinedAt: !419)
!424 = !DILocation(line: 26, column: 96, scope: !127, inlinedAt: !419)
!425 = !DILocation(line: 26, column: 103, scope: !127, inlinedAt: !419)
!426 = !DILocation(line: 26, column: 111, scope: !127, inlinedAt: !419)
!427 = !DILocation(line: 44, column: 2, scope: !280, inlinedAt: !409)
!428 = !DILocation(line: 44, column: 12, scope: !280, inlinedAt: !409)
!429 = !DILocation(line: 44, column: 6, scope: !280, inlinedAt: !409)
!430 = !DILocation(line: 44, column: 40, scope: !280, inlinedAt: !409)
!431 = !DILocation(line: 45, column: 11, scope: !280, inlinedAt: !409)
!432 = !DILocation(line: 46, column: 6, scope: !311, inlinedAt: !409)
!433 = !DILocation(line: 46, column: 6, scope: !280, inlinedAt: !409)
!434 = !DILocation(line: 46, column: 13, scope: !311, inlinedAt: !409)
!435 = !DILocation(line: 46, column: 9, scope: !311, inlinedAt: !409)
!436 = !DILocation(line: 46, column: 22, scope: !311, inlinedAt: !409)
!437 = !DILocation(line: 47, column: 6, scope: !280, inlinedAt: !409)
!438 = !DILocation(line: 48, column: 6, scope: !318, inlinedAt: !409)
!439 = !DILocation(line: 48, column: 6, scope: !280, inlinedAt: !409)
!440 = !DILocation(line: 48, column: 9, scope: !318, inlinedAt: !409)
!441 = !DILocation(line: 48, column: 42, scope: !318, inlinedAt: !409)
!442 = !DILocation(line: 50, column: 1, scope: !280, inlinedAt: !409)
!443 = !DILocation(line: 56, column: 67, scope: !404)
!444 = distinct !DISubprogram(name: "count_perf", scope: !3, file: !3, line: 57, type: !121, scopeLine: 57, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !2, retainedNodes: !445)
!445 = !{!446}
!446 = !DILocalVariable(name: "ctx", arg: 1, scope: !444, file: !3, line: 57, type: !86)
!447 = !DILocation(line: 0, scope: !444)
!448 = !DILocation(line: 0, scope: !280, inlinedAt: !449)
!449 = distinct !DILocation(line: 57, column: 62, scope: !444)
!450 = !DILocation(line: 25, column: 40, scope: !158, inlinedAt: !451)
!451 = distinct !DILocation(line: 42, column: 6, scope: !289, inlinedAt: !449)
!452 = !DILocation(line: 25, column: 47, scope: !158, inlinedAt: !451)
!453 = !DILocation(line: 25, column: 51, scope: !158, inlinedAt: !451)
!454 = !DILocation(line: 25, column: 78, scope: !158, inlinedAt: !451)
!455 = !DILocation(line: 25, column: 88, scope: !158, inlinedAt: !451)
!456 = !DILocation(line: 25, column: 85, scope: !158, inlinedAt: !451)
!457 = !DILocation(line: 42, column: 6, scope: !280, inlinedAt: !449)
!458 = !DILocation(line: 26, column: 55, scope: !127, inlinedAt: !459)
!459 = distinct !DILocation(line: 43, column: 2, scope: !280, inlinedAt: !449)
!460 = !DILocation(line: 26, column: 82, scope: !127, inlinedAt: !459)
!461 = !DILocation(line: 26, column: 50, scope: !127, inlinedAt: !459)
!462 = !DILocation(line: 0, scope: !127, inlinedAt: !459)
!463 = !DILocation(line: 26, column: 91, scope: !127, inlinedAt: !459)
!464 = !DILocation(line: 26, column: 96, scope: !127, inlinedAt: !459)
!465 = !DILocation(line: 26, column: 103, scope: !127, inlinedAt: !459)
!466 = !DILocation(line: 26, column: 111, scope: !127, inlinedAt: !459)
!467 = !DILocation(line: 44, column: 2, scope: !280, inlinedAt: !449)
!468 = !DILocation(line: 44, column: 12, scope: !280, inlinedAt: !449)
!469 = !DILocation(line: 44, column: 6, scope: !280, inlinedAt: !449)
!470 = !DILocation(line: 44, column: 40, scope: !280, inlinedAt: !449)
!471 = !DILocation(line: 45, column: 11, scope: !280, inlinedAt: !449)
!472 = !DILocation(line: 46, column: 6, scope: !311, inlinedAt: !449)
!473 = !DILocation(line: 46, column: 6, scope: !280, inlinedAt: !449)
!474 = !DILocation(line: 46, column: 13, scope: !311, inlinedAt: !449)
!475 = !DILocation(line: 46, column: 9, scope: !311, inlinedAt: !449)
!476 = !DILocation(line: 46, column: 22, scope: !311, inlinedAt: !449)
!477 = !DILocation(line: 47, column: 6, scope: !280, inlinedAt: !449)
!478 = !DILocation(line: 48, column: 6, scope: !318, inlinedAt: !449)
!479 = !DILocation(line: 48, column: 6, scope: !280, inlinedAt: !449)
!480 = !DILocation(line: 48, column: 9, scope: !318, inlinedAt: !449)
!481 = !DILocation(line: 48, column: 42, scope: !318, inlinedAt: !449)
!482 = !DILocation(line: 50, column: 1, scope: !280, inlinedAt: !449)
!483 = !DILocation(line: 57, column: 55, scope: !444)
!484 = distinct !DISubprogram(name: "count_tracing", scope: !3, file: !3, line: 58, type: !121, scopeLine: 58, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !2, retainedNodes: !485)
!485 = !{!486}
!486 = !DILocalVariable(name: "ctx", arg: 1, scope: !484, file: !3, line: 58, type: !86)
!487 = !DILocation(line: 0, scope: !484)
!488 = !DILocation(line: 0, scope: !280, inlinedAt: !489)
!489 = distinct !DILocation(line: 58, column: 68, scope: !484)
!490 = !DILocation(line: 25, column: 40, scope: !158, inlinedAt: !491)
!491 = distinct !DILocation(line: 42, column: 6, scope: !289, inlinedAt: !489)
!492 = !DILocation(line: 25, column: 47, scope: !158, inlinedAt: !491)
!493 = !DILocation(line: 25, column: 51, scope: !158, inlinedAt: !491)
!494 = !DILocation(line: 25, column: 78, scope: !158, inlinedAt: !491)
!495 = !DILocation(line: 25, column: 88, scope: !158, inlinedAt: !491)
!496 = !DILocation(line: 25, column: 85, scope: !158, inlinedAt: !491)
!497 = !DILocation(line: 42, column: 6, scope: !280, inlinedAt: !489)
!498 = !DILocation(line: 26, column: 55, scope: !127, inlinedAt: !499)
!499 = distinct !DILocation(line: 43, column: 2, scope: !280, inlinedAt: !489)
!500 = !DILocation(line: 26, column: 82, scope: !127, inlinedAt: !499)
!501 = !DILocation(line: 26, column: 50, scope: !127, inlinedAt: !499)
!502 = !DILocation(line: 0, scope: !127, inlinedAt: !499)
!503 = !DILocation(line: 26, column: 91, scope: !127, inlinedAt: !499)
!504 = !DILocation(line: 26, column: 96, scope: !127, inlinedAt: !499)
!505 = !DILocation(line: 26, column: 103, scope: !127, inlinedAt: !499)
!506 = !DILocation(line: 26, column: 111, scope: !127, inlinedAt: !499)
!507 = !DILocation(line: 44, column: 2, scope: !280, inlinedAt: !489)
!508 = !DILocation(line: 44, column: 12, scope: !280, inlinedAt: !489)
!509 = !DILocation(line: 44, column: 6, scope: !280, inlinedAt: !489)
!510 = !DILocation(line: 44, column: 40, scope: !280, inlinedAt: !489)
!511 = !DILocation(line: 45, column: 11, scope: !280, inlinedAt: !489)
!512 = !DILocation(line: 46, column: 6, scope: !311, inlinedAt: !489)
!513 = !DILocation(line: 46, column: 6, scope: !280, inlinedAt: !489)
!514 = !DILocation(line: 46, column: 13, scope: !311, inlinedAt: !489)
!515 = !DILocation(line: 46, column: 9, scope: !311, inlinedAt: !489)
!516 = !DILocation(line: 46, column: 22, scope: !311, inlinedAt: !489)
!517 = !DILocation(line: 47, column: 6, scope: !280, inlinedAt: !489)
!518 = !DILocation(line: 48, column: 6, scope: !318, inlinedAt: !489)
!519 = !DILocation(line: 48, column: 6, scope: !280, inlinedAt: !489)
!520 = !DILocation(line: 48, column: 9, scope: !318, inlinedAt: !489)
!521 = !DILocation(line: 48, column: 42, scope: !318, inlinedAt: !489)
!522 = !DILocation(line: 50, column: 1, scope: !280, inlinedAt: !489)
!523 = !DILocation(line: 58, column: 61, scope: !484)
!524 = distinct !DISubprogram(name: "hit_tracing", scope: !3, file: !3, line: 59, type: !121, scopeLine: 59, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !2, retainedNodes: !525)
!525 = !{!526}
!526 = !DILocalVariable(name: "ctx", arg: 1, scope: !524, file: !3, line: 59, type: !86)
!527 = !DILocation(line: 0, scope: !524)
!528 = !DILocation(line: 25, column: 40, scope: !158, inlinedAt: !529)
!529 = distinct !DILocation(line: 59, column: 62, scope: !530)
!530 = distinct !DILexicalBlock(scope: !524, file: !3, line: 59, column: 61)
!531 = !DILocation(line: 25, column: 47, scope: !158, inlinedAt: !529)
!532 = !DILocation(line: 25, column: 51, scope: !158, inlinedAt: !529)
!533 = !DILocation(line: 25, column: 78, scope: !158, inlinedAt: !529)
!534 = !DILocation(line: 25, column: 88, scope: !158, inlinedAt: !529)
!535 = !DILocation(line: 25, column: 85, scope: !158, inlinedAt: !529)
!536 = !DILocation(line: 59, column: 61, scope: !524)
!537 = !DILocation(line: 26, column: 55, scope: !127, inlinedAt: !538)
!538 = distinct !DILocation(line: 59, column: 71, scope: !530)
!539 = !DILocation(line: 26, column: 82, scope: !127, inlinedAt: !538)
!540 = !DILocation(line: 26, column: 50, scope: !127, inlinedAt: !538)
!541 = !DILocation(line: 0, scope: !127, inlinedAt: !538)
!542 = !DILocation(line: 26, column: 91, scope: !127, inlinedAt: !538)
!543 = !DILocation(line: 26, column: 96, scope: !127, inlinedAt: !538)
!544 = !DILocation(line: 26, column: 103, scope: !127, inlinedAt: !538)
!545 = !DILocation(line: 26, column: 111, scope: !127, inlinedAt: !538)
!546 = !DILocation(line: 59, column: 71, scope: !530)
!547 = !DILocation(line: 59, column: 78, scope: !524)
!548 = distinct !DISubprogram(name: "bad", scope: !3, file: !3, line: 60, type: !121, scopeLine: 60, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !2, retainedNodes: !549)
!549 = !{!550}
!550 = !DILocalVariable(name: "ctx", arg: 1, scope: !548, file: !3, line: 60, type: !86)
!551 = !DILocation(line: 0, scope: !548)
!552 = !DILocation(line: 60, column: 48, scope: !548)
!553 = !{!210, !210, i64 0}
!554 = !DILocation(line: 60, column: 41, scope: !548)
!555 = distinct !DISubprogram(name: "hit_iter", scope: !3, file: !3, line: 63, type: !556, scopeLine: 63, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !2, retainedNodes: !558)
!556 = !DISubroutineType(types: !557)
!557 = !{!7, !60}
!558 = !{!559}
!559 = !DILocalVariable(name: "ctx", arg: 1, scope: !555, file: !3, line: 63, type: !60)
!560 = !DILocation(line: 0, scope: !555)
!561 = !DILocation(line: 26, column: 55, scope: !127, inlinedAt: !562)
!562 = distinct !DILocation(line: 63, column: 50, scope: !555)
!563 = !DILocation(line: 26, column: 82, scope: !127, inlinedAt: !562)
!564 = !DILocation(line: 26, column: 50, scope: !127, inlinedAt: !562)
!565 = !DILocation(line: 0, scope: !127, inlinedAt: !562)
!566 = !DILocation(line: 26, column: 91, scope: !127, inlinedAt: !562)
!567 = !DILocation(line: 26, column: 96, scope: !127, inlinedAt: !562)
!568 = !DILocation(line: 26, column: 103, scope: !127, inlinedAt: !562)
!569 = !DILocation(line: 26, column: 111, scope: !127, inlinedAt: !562)
!570 = !DILocation(line: 63, column: 57, scope: !555)
